package stoker

import (
	"context"

	"github.com/stokerdata/stoker/internal/plan"
	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/survey"
)

// PlanTarget is the goal of a training: batch size n, seconds t of a step, and the figures they follow from. Zero
// values are filled in, or requested from the user.
type PlanTarget = plan.Target

// PlanDataset describes the data to be loaded; LookAt fills it in.
type PlanDataset = plan.Dataset

// PlanMachine has the rates of a machine; Measure fills it in.
type PlanMachine = plan.Machine

// PlanArray is one array of an example in a batch.
type PlanArray = plan.Array

// PlanWorkload is another training on the same storage.
type PlanWorkload = plan.Workload

// PlanResult has the requirements of the data path, whether it meets them, and the changes to make, each with its
// predicted effect.
type PlanResult = plan.Plan

// PlanMissing is the error of Plan when figures are missing; it names them.
type PlanMissing = plan.Missing

// PlanBadInput is the error of Plan when a figure cannot be meant.
type PlanBadInput = plan.BadInput

// Plan computes the requirements of target for the data path to dataset, and whether machine meets them. It only
// computes: LookAt examines a dataset, and Measure examines this machine. Sizes are in bytes, times in seconds, rates
// per second.
//
//	p, err := stoker.Plan(
//		stoker.PlanTarget{Batch: 128, Step: 0.087, Accelerators: 4, Storage: "nvme"},
//		stoker.PlanDataset{RecordBytes: 64e3},
//		stoker.PlanMachine{Cores: 16},
//	)
//	fmt.Println(p.Reads.IOPS, p.FirstToFail, p.Sentences)
func Plan(target PlanTarget, dataset PlanDataset, machine PlanMachine) (*PlanResult, error) {
	return plan.Make(target, dataset, machine)
}

// LookAt returns the number of records of the dataset at path, their sizes and their storage. It reads indexes and a
// sample.
func LookAt(ctx context.Context, path string) (PlanDataset, error) {
	s, err := survey.Look(ctx, path)
	if err != nil {
		return PlanDataset{}, err
	}
	return s.Dataset, nil
}

// Measure measures this machine for about 15 seconds: the storage under path,
// decoding on the images there, memory, cores and the hand-off of a batch.
func Measure(ctx context.Context, path string) (PlanMachine, error) {
	m, err := probe.Run(ctx, path, probe.Options{})
	if err != nil {
		return PlanMachine{}, err
	}
	return *m, nil
}
