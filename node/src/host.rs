//! What Node does to its process before any code of ours runs, taken back for a program that starts another one.
//!
//! Node marks all descriptors as not for other programs (`uv_disable_stdio_inheritance`), the standard streams included,
//! because it opens streams anew for each program that it starts itself. A command that native code starts would have
//! none. And Node handles signals: a handler that is installed later also calls the one that it finds.
#![allow(unsafe_code, reason = "descriptors that nobody owns, and signals")]

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// The last descriptor that libuv marks whether or not those before it are open. Then it ends at the first gap.
const MARKED_LEAST: RawFd = 15;

/// A descriptor that another program would not get.
struct Marked {
    fd: RawFd,
    /// The type, as in `st_mode`; 0 for what is not in a file system, such as an event queue.
    kind: libc::mode_t,
    inode: libc::ino_t,
    /// `O_RDONLY`, `O_WRONLY` or `O_RDWR`.
    access: libc::c_int,
}

/// SIGINT and SIGTERM end Node, and SIGUSR1 opens its debugger. SIGXFSZ is ignored, and would be in commands too.
///
/// SIGPIPE stays ignored, as in every program in Rust, and commands get its default.
const HANDLED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGXFSZ];

/// Lets signals do what they do by default.
pub(crate) fn leave_signals() {
    for signal in HANDLED {
        // SAFETY: Node expects no handler of its own to stay, as programs may replace each of them.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets programs that are started from now on have what this process was started with.
///
/// Node's own descriptors stay with it: event queues, and pipes with both ends in this process. A pipe of which the
/// parent has passed on both ends is taken for one of these.
pub(crate) fn pass_on_descriptors() {
    let listed = (0..RawFd::MAX).take_while(|fd| *fd <= MARKED_LEAST || flags(*fd).is_some());
    let marked: Vec<_> = listed.filter_map(look).collect();
    let mut ends: HashMap<libc::ino_t, libc::c_int> = HashMap::new();
    for pipe in marked.iter().filter(|marked| marked.kind == libc::S_IFIFO) {
        *ends.entry(pipe.inode).or_default() |= 1 << pipe.access;
    }
    let both = 1 << libc::O_RDONLY | 1 << libc::O_WRONLY;
    let is_own = |Marked { kind, inode, .. }: &Marked| *kind == 0 || ends.get(inode) == Some(&both);
    for Marked { fd, .. } in marked.iter().filter(|marked| marked.fd <= libc::STDERR_FILENO || !is_own(marked)) {
        // SAFETY: it is open, and nobody relies on the mark: Node has not started a program.
        unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) };
    }
}

/// Returns the flags of a descriptor; `None` if it is not open.
fn flags(fd: RawFd) -> Option<libc::c_int> {
    // SAFETY: asking about any number is allowed.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    (flags >= 0).then_some(flags)
}

/// Returns what there is to know of a descriptor, if it is marked.
fn look(fd: RawFd) -> Option<Marked> {
    if flags(fd)? & libc::FD_CLOEXEC == 0 {
        return None;
    }
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for the answer, and is read only if it was written.
    let stat = unsafe { if libc::fstat(fd, stat.as_mut_ptr()) == 0 { stat.assume_init() } else { return None } };
    // SAFETY: it is open.
    let access = unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_ACCMODE;
    Some(Marked { fd, kind: stat.st_mode & libc::S_IFMT, inode: stat.st_ino, access })
}
