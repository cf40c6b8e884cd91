// Package runfolder finds the folder in which processes of a user on this machine meet: shared files (package node),
// sockets of engines, and the list of running engines. Its content does not survive a restart of the machine.
package runfolder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Env names the folder, "off" for none.
const Env = "STOKER_RUNTIME_DIR"

// ErrNone means that this machine or user has no folder for sharing.
var ErrNone = errors.New("there is no runtime folder that only this user can read: set STOKER_RUNTIME_DIR")

// folders returns the possible folders, the best one first: in memory, and removed when the user logs out or the
// machine restarts.
func folders() []string {
	uid := os.Getuid()
	if at := os.Getenv(Env); at != "" {
		return []string{at}
	}
	var all []string
	if at := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(at) {
		all = append(all, filepath.Join(at, "stoker"))
	}
	return append(all, filepath.Join(fmt.Sprintf("/run/user/%d", uid), "stoker"), filepath.Join(os.TempDir(), fmt.Sprintf("stoker-%d", uid)))
}

// Find returns the folder, which it makes if create is set. A folder that other users may write to or read is not used:
// an attacker may have made it to get secrets.
func Find(create bool) (string, error) {
	if os.Getenv(Env) == "off" {
		return "", ErrNone
	}
	for _, dir := range folders() {
		if create {
			if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Getuid() && st.Mode&0o077 == 0 {
			return dir, nil
		}
	}
	return "", ErrNone
}

// Private returns a configuration for listening on a socket that only this user can open. The mode that a socket has
// before it gets its name is the mode of the file.
func Private() net.ListenConfig {
	return net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) })
		return cmp.Or(err, chmod)
	}}
}
