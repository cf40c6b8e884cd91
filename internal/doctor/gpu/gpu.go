// Package gpu reads how busy accelerators are, through the vendors' management
// libraries: NVIDIA's NVML and AMD's amdsmi. They are looked for when the
// program runs, so that one binary works on machines with and without them.
package gpu

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/ebitengine/purego"

	"github.com/stokerdata/stoker/internal/proc"
)

// Reading is the state of one device at one time. Values that a driver does not report are zero.
type Reading struct {
	Index       int
	Name        string
	Utilisation float64 // share of the last sample period in which a kernel ran, 0..1
	MemoryUsed  uint64  // bytes
	MemoryTotal uint64  // bytes
	Clock       int     // MHz of the compute units
	ClockMax    int     // MHz that they could run at
	PCIeReceive float64 // bytes per second to the device
	PCIeSend    float64 // bytes per second from it
	Throttled   string  // why it runs slower than it could; "" when it does not
}

// A library is one vendor's devices.
type library interface {
	count() int
	// read fills the available values. With all it reads more than the utilisation.
	read(i int, all bool, r *Reading)
	close()
}

// Devices are the accelerators of this machine. A goroutine reads their utilisation once a second and the other
// values in turn. The reason is that some of NVML's calls measure for 20 ms, and each takes a fraction of a
// millisecond of CPU time.
type Devices struct {
	libs []library
	stop chan struct{}
	done chan struct{}
	once sync.Once

	mu   sync.Mutex
	last []Reading
}

// Every is the interval between readings, the same as the interval of nvidia-smi dmon. If reading takes more than
// budget of a core, for example with many devices, the interval grows up to rarest.
const (
	Every  = time.Second
	budget = 0.001
	rarest = 4 * time.Second
)

// allEvery is the number of ticks between two readings of more than the utilisation.
const allEvery = 4

// The names under which drivers install their libraries.
var (
	nvmlNames = []string{"libnvidia-ml.so.1", "libnvidia-ml.so"}
	amdNames  = []string{"libamd_smi.so", "/opt/rocm/lib/libamd_smi.so"}
)

// Open loads the available libraries. If there is no accelerator to read, it returns nil and one line for the user.
func Open() (*Devices, []string) { return open(nvmlNames, amdNames, proc.ThreadCPU) }

// open is Open with the names of the libraries and a function for the CPU time of a thread.
func open(nvmlPaths, amdPaths []string, cpu func() time.Duration) (*Devices, []string) {
	var libs []library
	var notes []string
	nv, errNV := openNVML(nvmlPaths)
	if errNV == nil {
		libs = append(libs, nv)
	} else if !errors.Is(errNV, errNotFound) {
		notes = append(notes, "accelerators (NVML): "+errNV.Error())
	}
	amd, errAMD := openAMD(amdPaths)
	if errAMD == nil {
		libs = append(libs, amd)
	} else if !errors.Is(errAMD, errNotFound) {
		notes = append(notes, "accelerators (amdsmi): "+errAMD.Error())
	}
	if len(libs) == 0 {
		if len(notes) == 0 {
			notes = append(notes, "accelerators: neither NVML nor amdsmi was found on this machine")
		}
		return nil, notes
	}
	d := &Devices{libs: libs, stop: make(chan struct{}), done: make(chan struct{})}
	d.readAll(0)
	go d.loop(cpu)
	return d, notes
}

func (d *Devices) loop(cpu func() time.Duration) {
	defer close(d.done)
	runtime.LockOSThread() // whose CPU time is that of the reading
	defer runtime.UnlockOSThread()
	begun := cpu()
	timer := time.NewTimer(Every)
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-d.stop:
			return
		case <-timer.C:
			d.readAll(n)
			mean := (cpu() - begun) / time.Duration(n)
			timer.Reset(min(max(Every, time.Duration(float64(mean)/budget)), rarest))
		}
	}
}

// readAll reads every device. Every few ticks it reads all figures of one device, in turn.
func (d *Devices) readAll(tick int) {
	var all []Reading
	total := 0
	for _, l := range d.libs {
		total += l.count()
	}
	d.mu.Lock()
	before := d.last
	d.mu.Unlock()
	for _, l := range d.libs {
		for i := range l.count() {
			r := Reading{Index: len(all)}
			if r.Index < len(before) {
				r = before[r.Index]
			}
			l.read(i, tick == 0 || tick%(allEvery*total) == allEvery*r.Index, &r)
			all = append(all, r)
		}
	}
	d.mu.Lock()
	d.last = all
	d.mu.Unlock()
}

// Read returns the state of the devices at the last tick.
func (d *Devices) Read() []Reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// Close stops reading and unloads the libraries.
func (d *Devices) Close() {
	d.once.Do(func() {
		close(d.stop)
		<-d.done
		for _, l := range d.libs {
			l.close()
		}
	})
}

var errNotFound = errors.New("not found")

// load opens the first library that there is.
func load(paths []string) (uintptr, error) {
	for _, path := range paths {
		if lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
			return lib, nil
		}
	}
	return 0, errNotFound
}

// bind makes *f call the first function of lib that has one of the names, and reports whether it found one. Otherwise
// *f stays nil.
func bind(lib uintptr, f any, names ...string) bool {
	for _, name := range names {
		if symbol, err := purego.Dlsym(lib, name); err == nil && symbol != 0 {
			purego.RegisterFunc(f, symbol)
			return true
		}
	}
	return false
}

// text returns the printable bytes of b up to the first zero.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			b = b[:i]
			break
		}
	}
	for i, c := range b {
		if c < ' ' || c > '~' {
			return string(b[:i])
		}
	}
	return string(b)
}
