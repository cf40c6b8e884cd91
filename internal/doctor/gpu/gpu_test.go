package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNVML is a driver with two devices; the second never works and runs hot.
const fakeNVML = `
#include <string.h>
#include <stdint.h>
static int open_count;
int nvmlInit_v2(void) { open_count++; return FAIL; }
int nvmlShutdown(void) { open_count--; return 0; }
const char *nvmlErrorString(int rc) { return rc == 9 ? "Driver Not Loaded" : "Unknown"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(uintptr_t)(i + 1); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "Fake GPU", n); s[8] = (char)('0' + (uintptr_t)d); s[9] = 0; return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { u[0] = (uintptr_t)d == 1 ? 73 : 0; u[1] = 5; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 1000; m[1] = 600; m[2] = 400; return 0; }
int nvmlDeviceGetClockInfo(void *d, unsigned k, unsigned *c) { *c = k == 1 ? 900 : 0; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, unsigned k, unsigned *c) { *c = 1800; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { *r = (uintptr_t)d == 2 ? 0x20 : 1; return 0; }
int nvmlDeviceGetPcieThroughput(void *d, unsigned k, unsigned *v) { static unsigned n[3]; *v = k == 1 ? 2048 * ++n[(uintptr_t)d] : 1024; return 0; }
`

const fakeAMD = `
#include <string.h>
#include <stdint.h>
int amdsmi_init(uint64_t f) { return f == 2 ? 0 : 1; }
int amdsmi_shut_down(void) { return 0; }
int amdsmi_get_socket_handles(uint32_t *n, void **s) { if (!s) { *n = 1; return 0; } s[0] = (void *)7; return 0; }
int amdsmi_get_processor_handles(void *s, uint32_t *n, void **p) { if (!p) { *n = 1; return 0; } p[0] = (void *)8; return 0; }
int amdsmi_get_gpu_activity(void *p, uint32_t *u) { memset(u, 0, 64); u[0] = 41; return p == (void *)8 ? 0 : 1; }
int amdsmi_get_gpu_asic_info(void *p, char *s) { strcpy(s, "Fake Instinct"); return 0; }
int amdsmi_get_gpu_memory_total(void *p, int k, uint64_t *b) { *b = 100; return 0; }
int amdsmi_get_gpu_memory_usage(void *p, int k, uint64_t *b) { *b = 25; return 0; }
`

// build compiles a shared library.
func build(t *testing.T, source string, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "fake.c"), filepath.Join(dir, "fake.so")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-fPIC", "-o", out, in}, flags...)
	if text, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

func nothing() time.Duration { return 0 }

// Slow readings are made less often: 3 ms of 3 s are a thousandth.
func TestReadingKeepsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spent time.Duration
		d, _ := open([]string{build(t, fakeNVML, "-DFAIL=0")}, nil, func() time.Duration {
			spent += 3 * time.Millisecond
			return spent
		})
		defer d.Close()
		time.Sleep(61*time.Second + time.Millisecond)
		synctest.Wait()
		if n := spent / (3 * time.Millisecond); n != 22 { // at the start, after a second, and every three from then on
			t.Errorf("read %d times in a minute", n-1)
		}
	})
}

func TestNVML(t *testing.T) { synctest.Test(t, testNVML) }

func testNVML(t *testing.T) {
	d, notes := open([]string{"/nowhere/lib.so", build(t, fakeNVML, "-DFAIL=0")}, nil, nothing)
	if d == nil || len(notes) > 0 {
		t.Fatalf("not opened: %v", notes)
	}
	defer d.Close()
	got := d.Read()
	if len(got) != 2 {
		t.Fatalf("%d devices", len(got))
	}
	a, b := got[0], got[1]
	if a.Name != "Fake GPU1" || a.Utilisation != 0.73 || a.MemoryUsed != 400 || a.MemoryTotal != 1000 ||
		a.Clock != 900 || a.ClockMax != 1800 || a.Throttled != "" || a.PCIeReceive != 2048*1024 || a.PCIeSend != 1024*1024 {
		t.Errorf("first device: %+v", a)
	}
	if b.Utilisation != 0 || b.Throttled != "too hot (software)" {
		t.Errorf("second device: %+v", b)
	}
	// All of the second device's figures are read at every eighth tick, from the fourth on.
	for _, c := range []struct {
		seconds int
		times   float64
	}{{3, 1}, {2, 2}, {6, 2}, {1, 3}} {
		time.Sleep(time.Duration(c.seconds) * time.Second)
		synctest.Wait()
		got := d.Read()[1]
		if got.PCIeReceive != c.times*2048*1024 || got.Clock != 900 || got.Throttled == "" {
			t.Errorf("after %d s more: %+v, read %v times", c.seconds, got, c.times)
		}
	}
	if r := d.Read()[0]; r.PCIeReceive < 2*2048*1024 || r.Utilisation != 0.73 {
		t.Errorf("first device: %+v", r)
	}
}

func TestNVMLWithoutDriver(t *testing.T) {
	d, notes := open([]string{build(t, fakeNVML, "-DFAIL=9")}, nil, nothing)
	if d != nil || len(notes) != 1 || !strings.Contains(notes[0], "Driver Not Loaded") {
		t.Errorf("%v %v", d, notes)
	}
}

func TestAMD(t *testing.T) {
	d, notes := open(nil, []string{build(t, fakeAMD)}, nothing)
	if d == nil || len(notes) > 0 {
		t.Fatalf("not opened: %v", notes)
	}
	defer d.Close()
	got := d.Read()
	if len(got) != 1 || got[0].Name != "Fake Instinct" || got[0].Utilisation != 0.41 || got[0].MemoryUsed != 25 {
		t.Errorf("%+v", got)
	}
}

func TestNoLibrary(t *testing.T) {
	d, notes := open([]string{"/nowhere/a.so"}, []string{"/nowhere/b.so"}, nothing)
	if d != nil || len(notes) != 1 || !strings.Contains(notes[0], "neither") {
		t.Errorf("%v %v", d, notes)
	}
}

func TestForeignLibrary(t *testing.T) {
	lib := build(t, "int something(void) { return 1; }")
	d, notes := open([]string{lib}, []string{lib}, nothing)
	if d != nil || len(notes) != 2 {
		t.Errorf("%v %v", d, notes)
	}
}
