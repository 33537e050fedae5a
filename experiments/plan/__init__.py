"""The planned study: what decides each claim (PLAN.md), the pilots that chose its scale, and the teacher ladder."""
