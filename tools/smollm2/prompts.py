"""Twenty prompts for comparing routes: plain text to continue, short and long, with digits, code and other scripts."""

PROMPTS: tuple[str, ...] = (
    "The lighthouse keeper climbed the stairs every evening because",
    "To bake a loaf of rye bread at home, you first",
    "Water boils at a lower temperature in the mountains, since",
    "def is_prime(n):\n    ",
    "In 1969, three people travelled to",
    "A good question to ask before buying a used bicycle is",
    "The difference between a compiler and an interpreter is that",
    "My grandmother kept a tin of buttons, and whenever it rained",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear neighbour,\n\nI am writing about the hedge",
    "The three states of matter are",
    "Bonjour, je m'appelle",
    "If all cats are animals and some animals are black, then",
    "SELECT name, price FROM products WHERE",
    "The orchestra fell silent when the conductor",
    "Photosynthesis is the process by which",
    "Once the storm had passed, the fishermen of the village",
    "| city | country |\n|---|---|\n| Lisbon | Portugal |\n| Oslo |",
    "Why do we have leap years? The reason is",
    "Übung macht den Meister, sagte",
)

CAPITAL_QUESTION = "What is the capital of France?"
