package proc

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// ModelName is the processor's name, or its architecture's own description.
func (fs FS) ModelName() string {
	data, err := fs.Read(nil, "cpuinfo")
	if err != nil {
		return ""
	}
	return ParseModel(data)
}

// NUMANodes returns the number of memory nodes of the machine, 0 if that is unknown.
func (fs FS) NUMANodes() int { return countRange(fs.Text("devices/system/node/online")) }

// countRange counts the numbers in a kernel list such as "0-3,8".
func countRange(list string) int {
	n := 0
	for _, span := range strings.Split(list, ",") {
		lo, hi, isSpan := strings.Cut(strings.TrimSpace(span), "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			continue
		}
		b := a
		if isSpan {
			if b, err = strconv.Atoi(hi); err != nil || b < a {
				continue
			}
		}
		n += min(b-a, 1<<16) + 1
	}
	return n
}

func deviceNumber(major, minor uint32) string { return fmt.Sprintf("%d:%d", major, minor) }

// BlockDevice is the name of the whole disk with a device number, "" when the
// kernel does not show one.
func (fs FS) BlockDevice(major, minor uint32) string {
	target, err := os.Readlink(filepath.Join(fs.Sys, "dev/block", deviceNumber(major, minor)))
	if err != nil {
		return ""
	}
	name := path.Base(target)
	if _, err := os.Stat(filepath.Join(fs.Sys, "block", name)); err == nil {
		return name
	}
	return path.Base(path.Dir(target)) // a partition
}

// Rotational reports whether a disk rotates. known is false if the kernel does not report it.
func (fs FS) Rotational(disk string) (turns, known bool) {
	text := fs.Text("block", disk, "queue/rotational")
	return text == "1", text == "0" || text == "1"
}

// LineRate returns the speed of the fastest active network interface, in bytes per second, 0 if none reports it.
func (fs FS) LineRate() float64 {
	var best float64
	for _, name := range fs.glob(fs.Sys, "class/net/*/speed") {
		if mbit, err := strconv.ParseFloat(fs.Text(name), 64); err == nil && mbit > 0 {
			best = max(best, mbit*1e6/8)
		}
	}
	return best
}

// Accelerators returns the names of the accelerators that the drivers list. It loads no library.
func (fs FS) Accelerators() []string {
	var names []string
	for _, name := range fs.glob(fs.Proc, "driver/nvidia/gpus/*/information") {
		model := "NVIDIA"
		data, _ := fs.Read(nil, name)
		eachLine(data, func(line []byte) {
			if v, ok := bytes.CutPrefix(line, []byte("Model:")); ok {
				model = string(bytes.TrimSpace(v))
			}
		})
		names = append(names, model)
	}
	for _, name := range fs.glob(fs.Sys, "class/kfd/kfd/topology/nodes/*/properties") {
		data, _ := fs.ReadSys(nil, name)
		const key = "gfx_target_version"
		if gfx := ParseCounters(data, func(n string) bool { return n == key })[key]; gfx > 0 {
			names = append(names, fmt.Sprintf("AMD gfx%d", gfx))
		}
	}
	return names
}

// glob lists the matches below one of the two file systems, as relative paths.
func (fs FS) glob(root, pattern string) []string {
	names, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is sound
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], root+"/")
	}
	return names
}

// MountOf returns the mount of a path, as this process sees it.
func (fs FS) MountOf(path string) (Mount, bool) {
	data, err := fs.Process(nil, Self, "mountinfo")
	if err != nil {
		return Mount{}, false
	}
	return MountOf(ParseMounts(data), path)
}
