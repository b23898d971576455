"""Evidence bundles: a session in one file that can be checked without turnlog."""

from turnlog.infrastructure.bundle.errors import (
    BundleError,
    ForgedBundleError,
    InvalidKeyError,
    UnreadableBundleError,
    UnsignedBundleError,
)
from turnlog.infrastructure.bundle.reading import CheckedBundle, check_bundle, import_bundle, is_bundle
from turnlog.infrastructure.bundle.writing import WrittenBundle, export_bundle
from turnlog.infrastructure.whole_files import FileTakenError

__all__ = [
    "BundleError",
    "CheckedBundle",
    "FileTakenError",
    "ForgedBundleError",
    "InvalidKeyError",
    "UnreadableBundleError",
    "UnsignedBundleError",
    "WrittenBundle",
    "check_bundle",
    "export_bundle",
    "import_bundle",
    "is_bundle",
]
