//! How far `flock` reaches on a file system: to this machine only, or to all that mount it.

/// What the mount table tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A file system of this machine, or one whose `flock` is known to reach all clients.
    All,
    /// Known to stay on this machine; the reason.
    NodeOnly(String),
    /// A network file system of which the mount table does not say it.
    Unknown(String),
}

/// Reads it for the file system with the device number `device` (`major:minor`) from the text of
/// `/proc/self/mountinfo` (form: proc_pid_mountinfo(5)).
pub(crate) fn reach_of_flock(mountinfo: &str, device: &str) -> Reach {
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = before.split(' ').collect();
        if fields.get(2) != Some(&device) {
            continue;
        }
        let mut rest = after.split(' ');
        let kind = rest.next().unwrap_or_default();
        let options = rest.nth(1).unwrap_or_default();
        return reach_of(kind, options, fields.get(5).copied().unwrap_or_default());
    }
    Reach::All
}

fn reach_of(kind: &str, super_options: &str, mount_options: &str) -> Reach {
    let has = |wanted: &str| super_options.split(',').chain(mount_options.split(',')).any(|o| o == wanted);
    let local: &[&str] = match kind {
        "nfs" | "nfs4" => &["local_lock=all", "local_lock=flock", "nolock"],
        "lustre" => &["localflock"],
        "gfs2" | "ocfs2" => &["localflocks"],
        "cifs" | "smb3" => &["nobrl"],
        _ => &[],
    };
    if let Some(option) = local.iter().find(|o| has(o)) {
        return Reach::NodeOnly(format!("{kind} is mounted with {option}"));
    }
    match kind {
        "beegfs" | "gpfs" | "9p" | "virtiofs" | "orangefs" | "pvfs2" | "afs" => {
            Reach::Unknown(format!("whether flock on {kind} reaches other machines depends on its set-up"))
        }
        kind if kind.starts_with("fuse") => {
            Reach::Unknown(format!("whether flock on {kind} reaches other machines depends on its daemon"))
        }
        _ => Reach::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 25 0:31 / /data rw,relatime shared:2 - nfs4 srv:/x rw,vers=4.2,local_lock=none
37 25 0:32 / /data2 rw,relatime - nfs srv:/y rw,vers=3,local_lock=all
38 25 0:33 / /scratch rw - lustre mgs@tcp:/fs rw,localflock
39 25 0:34 / /scratch2 rw - lustre mgs@tcp:/fs rw,flock
40 25 0:35 / /f rw - fuse.glusterfs g rw";

    #[test]
    fn tells_apart() {
        assert_eq!(reach_of_flock(TABLE, "254:0"), Reach::All);
        assert_eq!(reach_of_flock(TABLE, "0:31"), Reach::All);
        assert!(matches!(reach_of_flock(TABLE, "0:32"), Reach::NodeOnly(_)));
        assert!(matches!(reach_of_flock(TABLE, "0:33"), Reach::NodeOnly(_)));
        assert_eq!(reach_of_flock(TABLE, "0:34"), Reach::All);
        assert!(matches!(reach_of_flock(TABLE, "0:35"), Reach::Unknown(_)));
        assert_eq!(reach_of_flock(TABLE, "9:9"), Reach::All);
    }
}
