"""What a policy costs in each of its forms: a small measured table, and questions to it (docs/costs.md)."""

from genai_compiler.costs.table import Choice, Costs, cheapest, shipped_costs

__all__ = ["Choice", "Costs", "cheapest", "shipped_costs"]
