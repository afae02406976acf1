"""What a policy costs in each of its forms: a small measured table, and questions to it (docs/costs.md)."""

from genai_compiler.costs.table import WAYS, Costs, shipped_costs

__all__ = ["WAYS", "Costs", "shipped_costs"]
