"""The contract of log and view, on persistence modules of others."""

from tests.contracts.test_appending import *  # noqa: F403 - the same claims
from tests.contracts.test_compacting import *  # noqa: F403
