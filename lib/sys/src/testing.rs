//! Support for tests that need privileges.

/// Reports that a test, or a part of it, did not run; fails where no test may be skipped, as in CI.
pub fn skip(needed: &str) {
    let may_skip = std::env::var_os("CORTEN_NO_SKIP").is_none();
    assert!(may_skip, "needs {needed}");
    eprintln!("SKIPPED: needs {needed}");
}
