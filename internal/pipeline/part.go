package pipeline

import "github.com/stokerdata/stoker/internal/fair"

// coreLimit returns the limit of a pipeline in cores, 0 for none.
func coreLimit(cfg *Config) float64 {
	limit := cfg.Cores
	if cfg.CPULimit > 0 {
		if part := cfg.CPULimit * float64(cores); limit == 0 || part < limit {
			limit = part
		}
	}
	return limit
}

// partOf returns the pipeline's part of its engine, nil for all of it.
func partOf(cfg *Config) *fair.Part {
	limit, node := coreLimit(cfg), cfg.Node
	if node == nil {
		if limit == 0 {
			return nil
		}
		node = fair.NewNode(cores)
	}
	return node.Join(cfg.Weight, limit)
}
