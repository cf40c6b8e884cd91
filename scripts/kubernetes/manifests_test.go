// Package kubernetes decodes the manifests of examples/ strictly, with the types that Kubernetes publishes. It is a
// module of its own, so that the engine does not depend on them. Run it with make test-cluster.
package kubernetes

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	strictyaml "sigs.k8s.io/yaml"
)

// jobSet is a JobSet of jobset.x-k8s.io/v1alpha2 with those fields that examples may use: the types of JobSet are in the
// module of its controller. The jobs in it have the types of Kubernetes.
type jobSet struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Network *struct {
			EnableDNSHostnames       *bool  `json:"enableDNSHostnames"`
			Subdomain                string `json:"subdomain"`
			PublishNotReadyAddresses *bool  `json:"publishNotReadyAddresses"`
		} `json:"network"`
		SuccessPolicy *struct {
			Operator             string   `json:"operator"`
			TargetReplicatedJobs []string `json:"targetReplicatedJobs"`
		} `json:"successPolicy"`
		FailurePolicy *struct {
			MaxRestarts int32 `json:"maxRestarts"`
		} `json:"failurePolicy"`
		ReplicatedJobs []struct {
			Name     string                `json:"name"`
			Replicas int32                 `json:"replicas"`
			Template batch.JobTemplateSpec `json:"template"`
		} `json:"replicatedJobs"`
	} `json:"spec"`
}

func TestManifests(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{batch.AddToScheme, core.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	// Strict: an unknown field, or one that appears twice, is an error.
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob("../../examples/kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(b)))
			buf := make([]byte, len(b)+1)
			var services []*core.Service
			var sets []*jobSet
			for {
				n, err := documents.Read(buf)
				if err == io.EOF {
					break
				}
				var meta struct {
					Kind string `json:"kind"`
				}
				if err == nil {
					err = yaml.Unmarshal(buf[:n], &meta)
				}
				if err != nil {
					t.Fatal(err)
				}
				if meta.Kind == "JobSet" {
					set := &jobSet{}
					if err := strictyaml.UnmarshalStrict(buf[:n], set); err != nil {
						t.Fatal(err)
					}
					sets = append(sets, set)
					checkJobSet(t, set)
					continue
				}
				o, _, err := strict.Decode(buf[:n], nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				switch o := o.(type) {
				case *batch.Job:
					checkJob(t, &o.Spec)
				case *core.Service:
					services = append(services, o)
				}
			}
			for _, s := range services {
				checkService(t, s, sets)
			}
		})
	}
}

// checkJobSet checks the jobs of a JobSet, and the names that belong together.
func checkJobSet(t *testing.T, set *jobSet) {
	if set.APIVersion != "jobset.x-k8s.io/v1alpha2" || set.Name == "" {
		t.Errorf("apiVersion %q, name %q", set.APIVersion, set.Name)
	}
	var names []string
	for i := range set.Spec.ReplicatedJobs {
		job := &set.Spec.ReplicatedJobs[i]
		names = append(names, job.Name)
		checkJob(t, &job.Template.Spec)
	}
	if s := set.Spec.SuccessPolicy; s != nil {
		if s.Operator != "All" && s.Operator != "Any" {
			t.Errorf("operator %q", s.Operator)
		}
		for _, name := range s.TargetReplicatedJobs {
			if !slices.Contains(names, name) {
				t.Errorf("there is no replicated job %s", name)
			}
		}
	}
}

// checkService checks that a service selects the pods of a replicated job, which listen on its ports.
func checkService(t *testing.T, s *core.Service, sets []*jobSet) {
	for _, set := range sets {
		for i := range set.Spec.ReplicatedJobs {
			job := &set.Spec.ReplicatedJobs[i]
			// The labels that the controller of JobSet gives to pods.
			labels := map[string]string{"jobset.sigs.k8s.io/jobset-name": set.Name, "jobset.sigs.k8s.io/replicatedjob-name": job.Name}
			if !maps.Equal(s.Spec.Selector, labels) {
				continue
			}
			var ports []int32
			for _, c := range job.Template.Spec.Template.Spec.Containers {
				for _, p := range c.Ports {
					ports = append(ports, p.ContainerPort)
				}
			}
			for _, p := range s.Spec.Ports {
				if !slices.Contains(ports, p.Port) {
					t.Errorf("the pods of %s do not listen on port %d", job.Name, p.Port)
				}
			}
			return
		}
	}
	t.Errorf("service %s selects no replicated job", s.Name)
}

// checkJob compares what the API server compares: selectors and names that belong together.
func checkJob(t *testing.T, job *batch.JobSpec) {
	pod := job.Template.Spec
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	containers, ports := map[string]bool{}, map[string]bool{}
	for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		containers[c.Name] = true
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: there is no volume %s", c.Name, m.Name)
			}
		}
		if p := c.ReadinessProbe; p != nil && p.TCPSocket != nil && !ports[p.TCPSocket.Port.StrVal] {
			t.Errorf("%s: there is no port %s", c.Name, p.TCPSocket.Port.StrVal)
		}
	}
	if pod.RestartPolicy != core.RestartPolicyNever && (pod.RestartPolicy != core.RestartPolicyOnFailure || job.PodFailurePolicy != nil || job.BackoffLimitPerIndex != nil) {
		t.Errorf("restartPolicy %q: rules for failures need Never", pod.RestartPolicy)
	}
	if p := job.PodFailurePolicy; p != nil {
		for _, r := range p.Rules {
			if e := r.OnExitCodes; e != nil && e.ContainerName != nil && !containers[*e.ContainerName] {
				t.Errorf("there is no container %s", *e.ContainerName)
			}
		}
	}
	if job.BackoffLimitPerIndex != nil && (job.CompletionMode == nil || *job.CompletionMode != batch.IndexedCompletion) {
		t.Error("backoffLimitPerIndex needs completionMode Indexed")
	}
}
