"""The version: as `driftree.__version__`, in files and in pickles."""

__version__ = "0.1.0"
