//! Operations on user volumes, as the controller of user volumes calls them.

use corten_volumes::user::{Facts, Place, Trouble, UserVolume, World};

/// Operations on the machine; a test's have no effect.
pub(crate) trait Outside: Clone + Send + Sync + 'static {
    /// See [`World::attach`].
    fn attach(
        &self,
        volume: &UserVolume,
        facts: &Facts,
    ) -> impl Future<Output = Result<Place, Trouble>> + Send;
    /// See [`World::release`].
    fn release(
        &self,
        volume: &UserVolume,
        place: &Place,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// See [`World::abandon`].
    fn abandon(
        &self,
        volume: &UserVolume,
        place: &Place,
    ) -> impl Future<Output = Result<(), String>> + Send;
    /// See [`World::is_mounted`].
    fn is_mounted(&self, volume: &UserVolume, place: &Place) -> bool;
    /// See [`World::forget_others`].
    fn forget_others(&self, wanted: &[UserVolume]) -> impl Future<Output = ()> + Send;
}

impl Outside for World {
    async fn attach(&self, volume: &UserVolume, facts: &Facts) -> Result<Place, Trouble> {
        World::attach(self, volume, facts).await
    }

    async fn release(&self, volume: &UserVolume, place: &Place) -> Result<(), String> {
        World::release(self, volume, place).await
    }

    async fn abandon(&self, volume: &UserVolume, place: &Place) -> Result<(), String> {
        World::abandon(self, volume, place).await
    }

    fn is_mounted(&self, volume: &UserVolume, place: &Place) -> bool {
        World::is_mounted(self, volume, place)
    }

    async fn forget_others(&self, wanted: &[UserVolume]) {
        World::forget_others(self, wanted).await;
    }
}
