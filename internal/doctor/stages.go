package doctor

import (
	"sort"
)

// stages returns the division of the time.
func (c *collector) stages(s *shares, sum *bin) []Stage {
	var out []Stage
	seconds := sum.dt * float64(max(1, len(c.trainers)))
	add := func(name string, share, seconds float64, exact bool) {
		if share >= 0.002 {
			out = append(out, Stage{Name: name, Share: round(share, 4), Seconds: round(share*seconds, 3), Exact: exact})
		}
	}
	add("step", s.step, seconds, s.exact)
	add("wait", s.wait, seconds, s.exact)
	// The trainer's own loading, divided by the parts in its frames.
	serial := 0.0
	for _, v := range s.serial {
		serial += v
	}
	parts := 0.0
	for _, n := range sum.trainerParts {
		parts += n
	}
	if parts > 0 {
		names := map[string]float64{}
		for p, n := range sum.trainerParts {
			names[partLabel(part(p))] += serial * n / parts
		}
		for _, name := range sortedKeys(names) {
			add(name, names[name], seconds, false)
		}
	} else {
		for _, v := range Causes {
			add("load ("+string(v)+")", s.serial[resources[v]], seconds, false)
		}
	}
	add("other", s.other, seconds, false)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Share > out[j].Share })
	if len(c.log.stages) > 0 && sum.dt > 0 {
		for _, name := range sortedKeys(c.log.stages) {
			out = append(out, Stage{Name: "step " + name, Share: round(c.log.stages[name]/seconds, 4), Seconds: round(c.log.stages[name], 3), Exact: true})
		}
	}
	if s.engine != nil {
		total := sum.v[mEngineRead] + sum.v[mEngineDecode] + sum.v[mEngineTransform] + sum.v[mEngineCollate]
		for _, e := range []struct {
			name string
			m    metric
		}{{"read", mEngineRead}, {"decode", mEngineDecode}, {"transform", mEngineTransform}, {"collate", mEngineCollate}} {
			if total > 0 {
				out = append(out, Stage{Name: "worker " + e.name, Share: round(sum.v[e.m]/total, 4), Seconds: round(sum.v[e.m], 3), Exact: true})
			}
		}
		return out
	}
	if s.lanes > 0 {
		workers := len(out)
		lanes := sum.dt * s.lanes
		total := 0.0
		for _, n := range sum.laneParts {
			total += n
		}
		names := map[string]float64{}
		if total > 0 {
			for p, n := range sum.laneParts {
				names["worker "+partLabel(part(p))] += s.busy * n / total
			}
		} else {
			for _, v := range Causes {
				names["worker "+string(v)] += s.use[resources[v]]
			}
		}
		for _, name := range sortedKeys(names) {
			add(name, names[name], lanes, false)
		}
		tail := out[workers:]
		sort.SliceStable(tail, func(i, j int) bool { return tail[i].Share > tail[j].Share })
		add("worker idle", max(0, 1-s.busy), lanes, false)
	}
	return out
}

// partLabel is the name of a part in the stage table.
func partLabel(p part) string {
	switch p {
	case partUnknown, partFetch, partStep:
		return "dataset code"
	case partWait:
		return "unpickle"
	case partPut:
		return "put in queue"
	}
	return partNames[p]
}
