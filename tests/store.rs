//! The object store against real directories.

#[path = "store/common.rs"]
mod common;
#[path = "store/direct_io.rs"]
mod direct_io;
#[path = "store/durability.rs"]
mod durability;
#[path = "store/layout.rs"]
mod layout;
#[path = "store/listing.rs"]
mod listing;
#[path = "proof/mount.rs"]
mod mount;
#[path = "store/multipart.rs"]
mod multipart;
#[path = "store/objects.rs"]
mod objects;
#[path = "store/observer.rs"]
mod observer;
#[path = "store/places.rs"]
mod places;
#[path = "store/races.rs"]
mod races;
#[path = "store/space.rs"]
mod space;
#[path = "store/trail.rs"]
mod trail;
#[path = "store/upkeep.rs"]
mod upkeep;
#[path = "store/versions.rs"]
mod versions;
