"""What an arena of ONNX Runtime has touched after so many allocations: its rules, played with sizes alone.

Source: core/framework/bfc_arena.cc with the defaults of a CPU session. Blocks come in whole steps of 256 bytes, the
smallest free one that is large enough; of one at least twice as large as asked for, the rest stays free. Where none
is, a region is added: the first has 1 MB, and regions double. Neighbours that are free join, across regions never. A
system commits pages as they are written, so that of a region what lies behind its furthest block costs nothing.
"""

from dataclasses import dataclass

STEP = 256
FIRST = 1 << 20
SPARE = 128 << 20
"""A block is divided as well where so many bytes of it would be left over."""


@dataclass
class _Block:
    start: int
    size: int
    free: bool = True


class Arena:
    """touched: bytes written so far, of all regions. in_use: bytes asked for and not given back."""

    def __init__(self) -> None:
        self._next = FIRST
        self._regions = list[list[_Block]]()
        self._furthest = list[int]()
        self._where = dict[str, tuple[int, _Block]]()
        self.in_use = 0

    @property
    def touched(self) -> int:
        """The regions, each as far as it was ever used."""
        return sum(self._furthest)

    def take(self, name: str, size: int) -> None:
        """Allocate for a name, which has nothing yet; no bytes are no allocation."""
        asked = -(-size // STEP) * STEP
        if not asked:
            return
        fitting = [
            (each.size, region, each.start, place)
            for region, blocks in enumerate(self._regions)
            for place, each in enumerate(blocks)
            if each.free and each.size >= asked
        ]
        _, region, _, place = min(fitting, default=(0, -1, 0, 0))
        if region < 0:
            region = self._extend(asked)
        blocks = self._regions[region]
        block = blocks[place]
        if block.size >= 2 * asked or block.size - asked >= SPARE:
            blocks.insert(place + 1, _Block(block.start + asked, block.size - asked))
            block.size = asked
        block.free = False
        self._furthest[region] = max(self._furthest[region], block.start + asked)
        self._where[name] = region, block
        self.in_use += asked

    def give(self, name: str) -> None:
        """Free what a name has, if it has anything."""
        if name not in self._where:
            return
        region, block = self._where.pop(name)
        self.in_use -= block.size
        blocks = self._regions[region]
        place = next(at for at, each in enumerate(blocks) if each is block)
        block.free = True
        if place + 1 < len(blocks) and blocks[place + 1].free:
            block.size += blocks.pop(place + 1).size
        if place and blocks[place - 1].free:
            blocks[place - 1].size += blocks.pop(place).size

    def _extend(self, asked: int) -> int:
        size = self._next
        while size < asked:
            size *= 2
        self._next = size if size > self._next else 2 * size
        self._regions.append([_Block(0, size)])
        self._furthest.append(0)
        return len(self._regions) - 1
