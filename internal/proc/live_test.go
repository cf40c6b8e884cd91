package proc

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

func TestLiveFiles(t *testing.T) {
	pid := os.Getpid()
	data, err := Live.Process(nil, pid, "stat")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := ParseStat(data); err != nil || s.PID != pid || s.Threads < 1 {
		t.Errorf("%+v %v", s, err)
	}
	f, err := Live.OpenThread(pid, pid, "stat")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 {
		if data, err := f.ReadOnce(make([]byte, 1024)); err != nil || StateOf(data) == 0 {
			t.Errorf("%q %v", data, err)
		}
	}
	if _, err := Live.Process(nil, 1<<30, "stat"); !Gone(err) {
		t.Errorf("%v", err)
	}
	if !Live.Exists(pid) || !Live.Exists(Self) || Live.Exists(1<<30) {
		t.Error("which processes there are")
	}
}

// The results equal those of a widely used library, on the machine of the test.
func TestEqualToLibrary(t *testing.T) {
	lib, err := procfs.NewDefaultFS()
	if err != nil {
		t.Skip(err)
	}
	self, err := lib.Self()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		data, err := Live.Process(nil, Self, name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	theirs, err := self.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := ParseStat(read("stat"))
	if err != nil || ours.PID != theirs.PID || ours.Comm != theirs.Comm || ours.PPID != theirs.PPID || ours.Start != theirs.Starttime || ours.UTime < uint64(theirs.UTime) || ours.CUTime < uint64(theirs.CUTime) {
		t.Errorf("stat: %+v, the library says %+v (%v)", ours, theirs, err)
	}
	if lib, err := self.NewStatus(); err != nil {
		t.Error(err)
	} else if s := ParseStatus(read("status")); uint64(s.UID) != lib.UIDs[0] || uint64(s.EUID) != lib.UIDs[1] || len(lib.NSpids) > 0 && uint64(s.Inner) != lib.NSpids[len(lib.NSpids)-1] || s.Voluntary < lib.VoluntaryCtxtSwitches {
		t.Errorf("status: %+v, the library says %+v", s, lib)
	}
	if lib, err := self.IO(); err == nil { // not every sandbox has it
		if v, err := ParseIO(read("io")); err != nil || v.ReadChars < lib.RChar || v.ReadCalls < lib.SyscR || v.ReadBytes < lib.ReadBytes {
			t.Errorf("io: %+v, the library says %+v (%v)", v, lib, err)
		}
	}
	if lib, err := lib.Meminfo(); err != nil {
		t.Error(err)
	} else if m, err := Live.Memory(); err != nil || m.Total != *lib.MemTotalBytes || m.SwapTotal != *lib.SwapTotalBytes {
		t.Errorf("memory: %+v, the library says %d (%v)", m, *lib.MemTotalBytes, err)
	}
	if lib, err := lib.Stat(); err != nil {
		t.Error(err)
	} else if data, err := Live.Read(nil, "stat"); err != nil {
		t.Error(err)
	} else if c, err := ParseCPU(data); err != nil || c.Cores != len(lib.CPU) || float64(c.User+1)/Ticks < lib.CPUTotal.User {
		t.Errorf("CPU: %+v, the library says %+v (%v)", c, lib.CPUTotal, err)
	}
	if lib, err := self.Cgroups(); err != nil {
		t.Error(err)
	} else {
		groups := ParseGroups(read("cgroup"))
		for _, g := range lib {
			for _, controller := range g.Controllers {
				if groups[controller] != g.Path && !strings.HasPrefix(g.Path, "/..") {
					t.Errorf("group of %q: %q, the library says %q", controller, groups[controller], g.Path)
				}
			}
		}
	}
	if lib, err := procfs.GetMounts(); err != nil {
		t.Error(err)
	} else {
		mounts := ParseMounts(read("mountinfo"))
		for i, m := range lib {
			if i >= len(mounts) || mounts[i].Type != m.FSType || mounts[i].Point != unescape(m.MountPoint) || strconv.Itoa(mounts[i].Major)+":"+strconv.Itoa(mounts[i].Minor) != m.MajorMinorVer {
				t.Errorf("mount %d is not what the library says: %+v", i, m)
				break
			}
		}
	}
	if lib, err := self.ProcMaps(); err != nil {
		t.Error(err)
	} else {
		first, _ := ParseMapping(strings.SplitN(string(read("maps")), "\n", 2)[0])
		if first.Start != uint64(lib[0].StartAddr) || first.End != uint64(lib[0].EndAddr) || first.Name != lib[0].Pathname {
			t.Errorf("maps: %+v, the library says %+v", first, lib[0])
		}
	}
}

func TestTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & echo; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil { // by then the shell has its child
		t.Fatal(err)
	}
	if got := Live.Tree(cmd.Process.Pid); len(got) != 2 {
		t.Fatalf("the shell and its child are %v", got)
	}
	if got, want := Live.scanTree(cmd.Process.Pid), Live.Tree(cmd.Process.Pid); !slices.Equal(got, want) {
		t.Errorf("%v by parents, %v by children", got, want)
	}
}

func TestMemoryFiles(t *testing.T) {
	const name = "stoker-proc-test"
	for _, n := range []string{name, name, name + "-other"} {
		fd, err := unix.MemfdCreate(n, unix.MFD_CLOEXEC)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Close(fd)
		if _, err := unix.Write(fd, []byte(n)); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	count := func(f *os.File) bool {
		defer f.Close()
		b := make([]byte, 100)
		n, _ := f.ReadAt(b, 0)
		if !bytes.Equal(b[:n], []byte(name)) {
			t.Errorf("found %q", b[:n])
		}
		found++
		return true
	}
	if err := Live.MemoryFiles(os.Getpid(), name, count); err != nil || found != 2 {
		t.Errorf("%d files, want 2 (%v)", found, err)
	}
	if err := Live.MemoryFiles(1<<30, name, count); !Gone(err) {
		t.Errorf("of no process: %v", err)
	}
}
