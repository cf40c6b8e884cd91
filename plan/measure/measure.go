// Package measure fills in what package plan computes from: it examines data and measures this machine.
package measure

import (
	"context"

	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/survey"
	"github.com/stokerdata/stoker/plan"
)

// Dataset returns the number of records of the dataset at path, their sizes and their storage. It reads indexes and a
// sample.
func Dataset(ctx context.Context, path string) (plan.Dataset, error) {
	s, err := survey.Look(ctx, path)
	if err != nil {
		return plan.Dataset{}, err
	}
	return s.Dataset, nil
}

// Machine measures this machine for about 15 seconds: the storage under path, decoding on the images there, memory,
// cores and the hand-off of a batch.
func Machine(ctx context.Context, path string) (plan.Machine, error) {
	m, err := probe.Run(ctx, path, probe.Options{})
	if err != nil {
		return plan.Machine{}, err
	}
	return *m, nil
}
