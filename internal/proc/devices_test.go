package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCountRange(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5, "": 0, "x": 0, "3-1": 0, "0-99999999": 1<<16 + 1} {
		if got := countRange(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

func TestDevices(t *testing.T) {
	fs := root(t, map[string]string{
		"proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: another\n",
		"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA H200\nIRQ: 5\n",
		"sys/class/kfd/kfd/topology/nodes/0/properties":    "cpu_cores_count 2\ngfx_target_version 0\n",
		"sys/class/kfd/kfd/topology/nodes/1/properties":    "gfx_target_version 90402\n",
		"sys/class/net/eth0/speed":                         "10000\n",
		"sys/class/net/eth1/speed":                         "-1\n",
		"sys/devices/system/node/online":                   "0-1\n",
		"sys/block/sda/queue/rotational":                   "1\n",
		"sys/block/sda/dev":                                "8:0\n",
		"sys/devices/pci/block/sda/sda1/partition":         "1\n",
		"sys/dev/block/x":                                  "",
		"proc/self/mountinfo":                              "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n26 25 0:5 / /a\\040b rw shared:1 - nfs4 server:/x\\040y rw\n",
		"proc/self/cgroup":                                 "0::/\n",
		"sys/fs/cgroup/io.max":                             "8:0 rbps=1000 riops=max\n",
	})
	for link, target := range map[string]string{"8:0": "../../block/sda", "8:1": "../../devices/pci/block/sda/sda1"} {
		if err := os.Symlink(target, filepath.Join(fs.Sys, "dev/block", link)); err != nil {
			t.Fatal(err)
		}
	}
	if got := fs.Accelerators(); !slices.Equal(got, []string{"NVIDIA H200", "AMD gfx90402"}) {
		t.Errorf("accelerators %q", got)
	}
	if got := fs.ModelName(); got != "A CPU @ 2 GHz" {
		t.Errorf("processor %q", got)
	}
	if got := fs.LineRate(); got != 1.25e9 {
		t.Errorf("%g bytes per second", got)
	}
	if got := fs.NUMANodes(); got != 2 {
		t.Errorf("%d nodes", got)
	}
	for _, minor := range []uint32{0, 1} { // the disk and its partition
		if got := fs.BlockDevice(8, minor); got != "sda" {
			t.Errorf("8:%d is %q", minor, got)
		}
		if bw, iops := fs.ReadLimits(fs.Group(Self), 8, minor); bw != 1000 || iops != 0 {
			t.Errorf("8:%d: limits %g and %g", minor, bw, iops)
		}
	}
	if turns, known := fs.Rotational("sda"); !turns || !known {
		t.Errorf("sda turns: %t, known: %t", turns, known)
	}
	if _, known := fs.Rotational("vda"); known {
		t.Error("a disk that is not there is known")
	}
	if m, ok := fs.MountOf("/a b/c"); !ok || m.Type != "nfs4" || m.Source != "server:/x y" {
		t.Errorf("mount %+v", m)
	}
	if m, ok := fs.MountOf("/a"); !ok || m.Type != "ext4" {
		t.Errorf("mount %+v", m)
	}
}
