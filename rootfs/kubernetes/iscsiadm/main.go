// Iscsiadm runs the iscsiadm of the node's iscsid: `iscsiadm ARGUMENT...`. The kubelet calls it for volumes by iSCSI.
//
// Both programs share a database and a socket, so they must be of one version and see the same files. An extension
// brings them as a service, in a mount namespace of its own.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// daemon is the name of the process whose namespaces are joined.
const daemon = "iscsid"

// places are the paths of iscsiadm in the extension, the reference's first.
var places = []string{"/usr/local/sbin/iscsiadm", "/usr/sbin/iscsiadm", "/usr/bin/iscsiadm"}

func main() {
	err := run("/proc", places, os.Args[1:])
	fmt.Fprintln(os.Stderr, "iscsiadm:", err)
	os.Exit(1)
}

// run replaces this process; it returns only an error.
func run(proc string, places, arguments []string) error {
	pid, err := find(proc)
	if err != nil {
		return err
	}
	if err := join(filepath.Join(proc, pid, "ns")); err != nil {
		return fmt.Errorf("cannot join the namespaces of %s (PID %s): %w", daemon, pid, err)
	}
	for _, place := range places {
		err = syscall.Exec(place, append([]string{"iscsiadm"}, arguments...), os.Environ())
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot run %s: %w", place, err)
		}
	}
	return fmt.Errorf("the service of %s has no iscsiadm: none of %s exists", daemon, strings.Join(places, ", "))
}

// find returns the process ID of the daemon.
func find(proc string) (string, error) {
	names, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		// The process may have ended.
		text, err := os.ReadFile(name)
		if err == nil && strings.TrimSpace(string(text)) == daemon {
			return filepath.Base(filepath.Dir(name)), nil
		}
	}
	return "", fmt.Errorf("no %s runs on this node; add the system extension iscsi-tools", daemon)
}

// join enters the mount and the network namespace below a directory such as /proc/PID/ns.
func join(directory string) error {
	spaces := map[string]int{"net": unix.CLONE_NEWNET, "mnt": unix.CLONE_NEWNS}
	files := make(map[string]*os.File)
	// The mount namespace changes the paths, so both files are opened first.
	for name := range spaces {
		file, err := os.Open(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		defer file.Close()
		files[name] = file
	}
	// The thread that joins is the one that executes the program, and it shares no directory with the other threads
	// (setns(2), CLONE_NEWNS).
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for _, name := range []string{"net", "mnt"} {
		if err := unix.Setns(int(files[name].Fd()), spaces[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
