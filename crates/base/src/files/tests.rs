//! Files, locks and folders.

use super::*;

#[test]
fn atomic_write_replaces_and_leaves_no_temporary_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    write_atomic(&path, b"one").unwrap();
    write_atomic(&path, b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn names_may_have_the_maximum_length() {
    let dir = tempfile::tempdir().unwrap();
    // 255 bytes, with a two-byte character across the cut.
    let names = ["a", "b"].map(|end| format!("{}{end}", "é".repeat(127)));
    for name in &names {
        write_atomic(&dir.path().join(name), b"one").unwrap();
        let fresh = dir.path().join(name.replace('é', "ä"));
        write_new(&fresh, b"two", 0o600).unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    let temporary = names.map(|name| temporary_sibling(&dir.path().join(name)).unwrap());
    assert_ne!(temporary[0], temporary[1]);
}

#[test]
fn a_new_file_is_complete_or_absent_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.sh");
    write_new(&path, b"one", 0o700).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let again = write_new(&path, b"two", 0o700).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert!(is_path_error(&again));
    // Created by another process in the meantime.
    let (from, to) = (dir.path().join("from"), path.clone());
    fs::write(&from, b"two").unwrap();
    let raced = rename_new(&from, &to).unwrap_err();
    assert_eq!(raced.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"one");
    fs::remove_file(&from).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let absent = write_new(&dir.path().join("no/where"), b"", 0o666).unwrap_err();
    assert!(is_path_error(&absent));
    assert!(!is_path_error(&io::ErrorKind::StorageFull.into()));
}

#[test]
fn a_lock_excludes_others_and_is_visible() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    assert!(!is_locked(&path));
    let lock = try_lock(&path).unwrap().unwrap();
    assert!(is_locked(&path));
    assert!(try_lock(&path).unwrap().is_none());
    drop(lock);
    assert!(try_lock(&path).unwrap().is_some());
}

/// With a handle for writing, every live run on NFSv4 looked dead.
#[test]
fn a_lock_is_looked_at_with_a_handle_that_any_file_system_takes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    drop(try_lock(&path).unwrap());
    let flags = rustix::fs::fcntl_getfl(open_to_look(&path).unwrap()).unwrap();
    let access = flags & rustix::fs::OFlags::RWMODE;
    assert_eq!(access, rustix::fs::OFlags::RDONLY);
    // Nobody holds what is not there; a server that is away says nothing.
    let errno = |errno: rustix::io::Errno| is_no_answer(&errno.into());
    assert!(errno(rustix::io::Errno::TIMEDOUT) && errno(rustix::io::Errno::STALE));
    assert!(!errno(rustix::io::Errno::NOENT) && !errno(rustix::io::Errno::NOTSUP));
    assert!(!is_locked(&path.join("below a file")));
}

#[test]
fn small_files_are_read_but_not_pipes_devices_or_large_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, "abc").unwrap();
    assert_eq!(read_small_text(&path, 3).unwrap(), "abc");
    let large = read_small(&path, 2).unwrap_err().to_string();
    assert!(large.contains("more than 2 bytes"), "{large}");
    fs::write(&path, [0xff]).unwrap();
    assert!(read_small_text(&path, 3).is_err());
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let mut append = OpenOptions::new();
    append.append(true);
    for path in [&pipe, Path::new("/dev/zero"), dir.path()] {
        for refused in [
            read_small(path, 10).unwrap_err(),
            read_plain_text(path).unwrap_err(),
            open_plain_with(&mut append, path).unwrap_err(),
        ] {
            let refused = refused.to_string();
            assert!(refused.contains("not a plain file"), "{path:?}: {refused}");
        }
    }
}

#[test]
fn free_space_is_reported() {
    assert!(free_space(Path::new(".")).unwrap() > 0);
}

#[test]
fn open_foreign_and_symlinked_directories_are_rejected() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("a/b");
    private_dir(&own).unwrap();
    private_dir(&own).unwrap();
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
    let open = fs::Permissions::from_mode(0o750);
    fs::set_permissions(&own, open).unwrap();
    let refused = private_dir(&own).unwrap_err().to_string();
    assert!(refused.contains("750"), "{refused}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("a"), &link).unwrap();
    assert!(matches!(
        private_dir(&link),
        Err(PrivateDirError::Unsafe { .. })
    ));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(private_dir(&file).is_err());
}

#[test]
fn write_errors_state_location_cause_and_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    fs::write(&file, "x").unwrap();
    let said = |path: &Path| {
        let error = write_new(path, b"y", 0o666).unwrap_err();
        let (what, fix) = not_written(path, &error);
        format!("{what}; {fix}")
    };
    for (path, words) in [
        (file.clone(), ["already exists", "another name"]),
        (
            dir.path().join("no/b"),
            ["its folder does not exist", "mkdir -p"],
        ),
        (
            file.join("b"),
            ["/a is a file, not a folder", "another folder"],
        ),
    ] {
        let said = said(&path);
        let fits = words.iter().all(|word| said.contains(word));
        assert!(fits && !said.contains("os error"), "{said}");
    }
}

#[test]
fn read_create_and_delete_errors_state_location_cause_and_fix() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    fs::write(&file, b"\xff").unwrap();
    let read = |path: &Path| not_read(path, &read_plain_text(path).unwrap_err());
    let made = |path: &Path| not_made(path, &fs::create_dir_all(path).unwrap_err());
    let of = |kind: io::ErrorKind| not_deleted(&file, &kind.into());
    for ((what, fix), words) in [
        (
            read(&dir.path().join("no")),
            ["no does not exist", "another file"],
        ),
        (read(dir.path()), ["is a folder", "a file in it"]),
        (read(&file.join("b")), ["/a is a file, not", "another file"]),
        (read(&file), ["not UTF-8", "plain text"]),
        (made(&file), ["/a is a file, not", "another folder"]),
        (
            made(&file.join("b")),
            ["/a is a file, not", "another folder"],
        ),
        (
            of(io::ErrorKind::PermissionDenied),
            ["permission denied", "the permissions of"],
        ),
        (of(io::ErrorKind::StorageFull), ["is full", "make room"]),
        (
            of(io::ErrorKind::ReadOnlyFilesystem),
            ["read-only", "is mounted"],
        ),
    ] {
        let said = format!("{what}; {fix}");
        let fits = words.iter().all(|word| said.contains(word));
        assert!(fits && !said.contains("os error"), "{said}");
    }
    let deep = dir.path().join("no/such/place");
    let (_, fix) = of_the_disk(&deep, &io::ErrorKind::PermissionDenied.into());
    assert!(fix.ends_with(&shown(dir.path()).to_string()), "{fix}");
}
