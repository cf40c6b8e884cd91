package probe

import (
	"context"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
)

// system sets the values that the kernel reports, without measuring.
func (p *probe) system(context.Context, time.Duration) {
	p.m.CPU = proc.Live.ModelName()
	p.m.Cores = proc.Live.UsableCores()
	p.m.NUMANodes = proc.Live.NUMANodes()
	p.m.MemoryTotal = proc.Live.TotalMemory()
	free, err := proc.Live.FreeMemory()
	if err != nil {
		p.note("free memory: %v", err)
	}
	p.m.MemoryFree = free
	p.m.Accelerators = proc.Live.Accelerators()
}
