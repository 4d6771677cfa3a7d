use std::path::Path;

use crate::image::raw;
use crate::image::testing::{Scratch, noise, release};
use crate::secure_boot::tests::development;

#[test]
fn image_cache_partition_is_last_and_moves_no_other_partition() {
    let scratch = Scratch::new();
    let file = scratch.file("any", b"any");
    let cache = scratch.file("cache", &noise((1 << 20) + 1));
    let meta = corten_meta::Values::new();
    let write = |images: Option<&Path>| {
        let disk = raw::Disk {
            uki: &file,
            sd_boot: &file,
            enrol: &development(),
            grub: None,
            meta: &meta,
            board: &raw::Board::default(),
            images,
            size: None,
        };
        let out = scratch.path("disk");
        raw::build(&out, &release(), &disk).unwrap();
        let mut image = std::fs::File::open(&out).unwrap();
        let table = gptman::GPT::find_from(&mut image).unwrap();
        let parts: Vec<_> = table
            .iter()
            .filter(|(_, part)| part.is_used())
            .map(|(_, part)| {
                let name = part.partition_name.as_str().to_owned();
                (name, part.starting_lba * 512, part.ending_lba * 512 + 512)
            })
            .collect();
        (parts, std::fs::read(&out).unwrap())
    };
    let (without, _) = write(None);
    let (with, image) = write(Some(&cache));
    let (last, before) = with.split_last().unwrap();
    assert_eq!(before, without);
    assert_eq!(
        (last.0.as_str(), last.1, last.2 - last.1),
        ("IMAGECACHE", without[2].2, 2 << 20)
    );
    let content = &image[usize::try_from(last.1).unwrap()..];
    assert!(content.starts_with(&std::fs::read(&cache).unwrap()));
}
