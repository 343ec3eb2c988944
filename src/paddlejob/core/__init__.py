"""The pure domain: what a PaddleJob needs next, decided without a clock, a network or a log."""
