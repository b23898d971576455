"""Evidence bundles: a session in one file that can be checked without turnlog."""

from turnlog.infrastructure.bundle.errors import (
    BundleError,
    ForgedBundleError,
    UnreadableBundleError,
)
from turnlog.infrastructure.bundle.reading import CheckedBundle, check_bundle, import_bundle, is_bundle
from turnlog.infrastructure.bundle.writing import WrittenBundle, export_bundle

__all__ = [
    "BundleError",
    "CheckedBundle",
    "ForgedBundleError",
    "UnreadableBundleError",
    "WrittenBundle",
    "check_bundle",
    "export_bundle",
    "import_bundle",
    "is_bundle",
]
