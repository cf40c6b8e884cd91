// Package kubernetes decodes the manifests of examples/ strictly, with the types that Kubernetes publishes. It is a
// module of its own, so that the engine does not depend on them. Run it with make test-cluster.
package kubernetes

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// others are kinds that Kubernetes itself does not have. Their types would need modules of their own.
var others = map[string]bool{"JobSet": true}

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
			for {
				n, err := documents.Read(buf)
				if err == io.EOF {
					return
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
				if others[meta.Kind] {
					t.Logf("%s: only its syntax is checked", meta.Kind)
					continue
				}
				o, _, err := strict.Decode(buf[:n], nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if job, ok := o.(*batch.Job); ok {
					checkJob(t, job)
				}
			}
		})
	}
}

// checkJob compares what the API server compares: selectors and names that belong together.
func checkJob(t *testing.T, job *batch.Job) {
	pod := job.Spec.Template.Spec
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	containers := map[string]bool{}
	for _, c := range pod.Containers {
		containers[c.Name] = true
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: there is no volume %s", c.Name, m.Name)
			}
		}
	}
	if pod.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("restartPolicy %q: rules for failures need Never", pod.RestartPolicy)
	}
	if p := job.Spec.PodFailurePolicy; p != nil {
		for _, r := range p.Rules {
			if e := r.OnExitCodes; e != nil && e.ContainerName != nil && !containers[*e.ContainerName] {
				t.Errorf("there is no container %s", *e.ContainerName)
			}
		}
	}
	if job.Spec.BackoffLimitPerIndex != nil && (job.Spec.CompletionMode == nil || *job.Spec.CompletionMode != batch.IndexedCompletion) {
		t.Error("backoffLimitPerIndex needs completionMode Indexed")
	}
}
