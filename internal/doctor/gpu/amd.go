package gpu

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// amd is AMD's system management interface (amdsmi.h of ROCm 6). It uses only calls whose arguments are the same in
// all versions.
type amd struct {
	lib     uintptr
	devices []uintptr
	names   []string

	shutdown    func() int32
	activity    func(dev uintptr, out *amdActivity) int32
	memoryTotal func(dev uintptr, kind int32, bytes *uint64) int32
	memoryUsed  func(dev uintptr, kind int32, bytes *uint64) int32
}

// amdActivity is amdsmi_engine_usage_t: percent of the graphics, memory and media engines, and reserved space.
type amdActivity struct {
	Graphics, Memory, Media uint32
	_                       [13]uint32
}

const (
	amdInitGPUs = 1 << 1
	amdVRAM     = 0
	// amdInfoBytes is more than any version of amdsmi_asic_info_t, which begins
	// with the device's name.
	amdInfoBytes = 4096
)

func openAMD(paths []string) (*amd, error) {
	lib, err := load(paths)
	if err != nil {
		return nil, err
	}
	a := &amd{lib: lib}
	var start func(uint64) int32
	var sockets func(*uint32, []uintptr) int32
	var processors func(uintptr, *uint32, []uintptr) int32
	var countSockets func(*uint32, uintptr) int32
	var countProcessors func(uintptr, *uint32, uintptr) int32
	var info func(uintptr, []byte) int32
	if !bind(lib, &start, "amdsmi_init") || !bind(lib, &a.shutdown, "amdsmi_shut_down") ||
		!bind(lib, &sockets, "amdsmi_get_socket_handles") || !bind(lib, &countSockets, "amdsmi_get_socket_handles") ||
		!bind(lib, &processors, "amdsmi_get_processor_handles") || !bind(lib, &countProcessors, "amdsmi_get_processor_handles") ||
		!bind(lib, &a.activity, "amdsmi_get_gpu_activity") {
		purego.Dlclose(lib)
		return nil, fmt.Errorf("the library lacks functions that every version has")
	}
	bind(lib, &info, "amdsmi_get_gpu_asic_info")
	bind(lib, &a.memoryTotal, "amdsmi_get_gpu_memory_total")
	bind(lib, &a.memoryUsed, "amdsmi_get_gpu_memory_usage")
	if rc := start(amdInitGPUs); rc != 0 {
		purego.Dlclose(lib)
		return nil, fmt.Errorf("it did not start: error %d", rc)
	}
	var n uint32
	if rc := countSockets(&n, 0); rc != 0 || n == 0 {
		a.close()
		return nil, fmt.Errorf("it finds no device")
	}
	n = min(n, maxDevices)
	found := make([]uintptr, n)
	if rc := sockets(&n, found); rc != 0 {
		a.close()
		return nil, fmt.Errorf("it cannot list the devices: error %d", rc)
	}
	for _, socket := range found[:min(int(n), len(found))] {
		var m uint32
		if countProcessors(socket, &m, 0) != 0 || m == 0 {
			continue
		}
		m = min(m, maxDevices)
		devices := make([]uintptr, m)
		if processors(socket, &m, devices) != 0 {
			continue
		}
		for _, dev := range devices[:min(int(m), len(devices))] {
			label := "AMD GPU"
			b := make([]byte, amdInfoBytes)
			if info != nil && info(dev, b) == 0 {
				if s := text(b); s != "" {
					label = s
				}
			}
			a.devices = append(a.devices, dev)
			a.names = append(a.names, label)
		}
	}
	if len(a.devices) == 0 {
		a.close()
		return nil, fmt.Errorf("it finds no device")
	}
	return a, nil
}

func (a *amd) count() int { return len(a.devices) }

func (a *amd) read(i int, _ bool, r *Reading) {
	dev := a.devices[i]
	r.Name, r.Utilisation = a.names[i], 0
	var u amdActivity
	// 65535 means "not reported".
	if a.activity(dev, &u) == 0 && u.Graphics <= 100 {
		r.Utilisation = float64(u.Graphics) / 100
	}
	if a.memoryTotal != nil && a.memoryUsed != nil {
		if a.memoryTotal(dev, amdVRAM, &r.MemoryTotal) != 0 || a.memoryUsed(dev, amdVRAM, &r.MemoryUsed) != 0 {
			r.MemoryTotal, r.MemoryUsed = 0, 0
		}
	}
}

func (a *amd) close() {
	a.shutdown()
	purego.Dlclose(a.lib)
}
