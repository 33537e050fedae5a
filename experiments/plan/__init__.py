"""The planned study: what decides each claim (PLAN.md), and the pilots that chose its scale."""
