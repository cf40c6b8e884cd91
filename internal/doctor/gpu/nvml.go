package gpu

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// nvml is NVIDIA's management library. Names, numbers and structures are those
// of nvml.h, which keeps them stable: a changed function gets a new suffix.
type nvml struct {
	lib     uintptr
	devices []uintptr
	names   []string

	shutdown    func() int32
	errorString func(int32) string
	utilisation func(dev uintptr, out *nvmlUtilisation) int32
	memory      func(dev uintptr, out *nvmlMemory) int32
	clock       func(dev uintptr, kind uint32, mhz *uint32) int32
	clockMax    func(dev uintptr, kind uint32, mhz *uint32) int32
	throttle    func(dev uintptr, reasons *uint64) int32
	pcie        func(dev uintptr, counter uint32, kbps *uint32) int32
}

type nvmlUtilisation struct{ GPU, Memory uint32 } // percent
type nvmlMemory struct{ Total, Free, Used uint64 }

const (
	nvmlClockSM     = 1
	nvmlPCIeSend    = 0 // from the device
	nvmlPCIeReceive = 1 // to the device
	maxDevices      = 64
)

// throttleReasons are the bits that make a device slower than it could be;
// being idle or set to a clock by its user are not among them.
var throttleReasons = []struct {
	bit  uint64
	name string
}{
	{0x4, "power cap"}, {0x8, "hardware slowdown"}, {0x10, "sync boost"},
	{0x20, "too hot (software)"}, {0x40, "too hot (hardware)"}, {0x80, "power brake"},
}

func openNVML(paths []string) (*nvml, error) {
	lib, err := load(paths)
	if err != nil {
		return nil, err
	}
	n := &nvml{lib: lib}
	var start func() int32
	var count func(*uint32) int32
	var handle func(uint32, *uintptr) int32
	var name func(uintptr, []byte, uint32) int32
	if !bind(lib, &start, "nvmlInit_v2", "nvmlInit") || !bind(lib, &n.shutdown, "nvmlShutdown") ||
		!bind(lib, &count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") ||
		!bind(lib, &handle, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex") ||
		!bind(lib, &n.utilisation, "nvmlDeviceGetUtilizationRates") {
		purego.Dlclose(lib)
		return nil, fmt.Errorf("the library lacks functions that every version has")
	}
	bind(lib, &n.errorString, "nvmlErrorString")
	bind(lib, &name, "nvmlDeviceGetName")
	bind(lib, &n.memory, "nvmlDeviceGetMemoryInfo")
	bind(lib, &n.clock, "nvmlDeviceGetClockInfo")
	bind(lib, &n.clockMax, "nvmlDeviceGetMaxClockInfo")
	bind(lib, &n.throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksEventReasons")
	bind(lib, &n.pcie, "nvmlDeviceGetPcieThroughput")
	if rc := start(); rc != 0 {
		err := fmt.Errorf("it did not start: %s", n.reason(rc))
		purego.Dlclose(lib)
		return nil, err
	}
	var number uint32
	if rc := count(&number); rc != 0 || number == 0 {
		err := fmt.Errorf("it finds no device")
		if rc != 0 {
			err = fmt.Errorf("it cannot count the devices: %s", n.reason(rc))
		}
		n.close()
		return nil, err
	}
	for i := range min(number, maxDevices) {
		var dev uintptr
		if handle(i, &dev) != 0 {
			continue // one that this user may not see
		}
		label := "NVIDIA GPU"
		if name != nil {
			b := make([]byte, 96)
			if name(dev, b, uint32(len(b))) == 0 {
				label = text(b)
			}
		}
		n.devices = append(n.devices, dev)
		n.names = append(n.names, label)
	}
	if len(n.devices) == 0 {
		n.close()
		return nil, fmt.Errorf("none of its %d devices may be seen", number)
	}
	return n, nil
}

func (n *nvml) reason(rc int32) string {
	if n.errorString != nil {
		return n.errorString(rc)
	}
	return fmt.Sprintf("error %d", rc)
}

func (n *nvml) count() int { return len(n.devices) }

func (n *nvml) read(i int, all bool, r *Reading) {
	dev := n.devices[i]
	r.Name, r.Utilisation = n.names[i], 0
	var u nvmlUtilisation
	if n.utilisation(dev, &u) == 0 {
		r.Utilisation = float64(min(u.GPU, 100)) / 100
	}
	if !all {
		return
	}
	*r = Reading{Index: r.Index, Name: r.Name, Utilisation: r.Utilisation}
	var m nvmlMemory
	if n.memory != nil && n.memory(dev, &m) == 0 {
		r.MemoryUsed, r.MemoryTotal = m.Used, m.Total
	}
	var mhz uint32
	if n.clock != nil && n.clock(dev, nvmlClockSM, &mhz) == 0 {
		r.Clock = int(mhz)
	}
	if n.clockMax != nil && n.clockMax(dev, nvmlClockSM, &mhz) == 0 {
		r.ClockMax = int(mhz)
	}
	var reasons uint64
	if n.throttle != nil && n.throttle(dev, &reasons) == 0 {
		for _, t := range throttleReasons {
			if reasons&t.bit != 0 {
				r.Throttled = t.name
				break
			}
		}
	}
	if n.pcie != nil {
		var kb uint32
		if n.pcie(dev, nvmlPCIeReceive, &kb) == 0 {
			r.PCIeReceive = float64(kb) * 1024
		}
		if n.pcie(dev, nvmlPCIeSend, &kb) == 0 {
			r.PCIeSend = float64(kb) * 1024
		}
	}
}

func (n *nvml) close() {
	n.shutdown()
	purego.Dlclose(n.lib)
}
