"""What holds for every test: none depends on how fast the machine is, or on who started the run."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "turnlog", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("turnlog")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background; children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
