//! Limits of lists in requests.

use tonic::Status;

/// Rejects a list with more than `most` entries; `field` names it in the error.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn at_most(field: &str, length: usize, most: usize) -> Result<(), Status> {
    if length > most {
        return Err(Status::invalid_argument(format!(
            "{field}: has {length} entries, but one call may have at most {most}"
        )));
    }
    Ok(())
}
