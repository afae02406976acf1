"""The reference interpreter of the tests, and the reader and comparer of conformance cases."""
