//! Certificates of the API.
