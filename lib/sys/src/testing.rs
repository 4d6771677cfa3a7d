//! For tests of what not everybody may do.

/// Says that (a part of) this test did not run; where every test has to, as in CI, it fails.
pub fn skip(needed: &str) {
    let may_skip = std::env::var_os("CORTEN_NO_SKIP").is_none();
    assert!(may_skip, "needs {needed}");
    eprintln!("SKIPPED: needs {needed}");
}
