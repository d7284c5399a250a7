package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	composetypes "github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

const (
	composeDir    = "../compose"
	kubernetesDir = "../kubernetes"
)

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// secrets are the environment variables that a configuration file refers to.
func secrets(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`"env:([A-Z0-9_]+)"`).FindAllSubmatch(read(t, dir, "ringside.yaml"), -1) {
		names = append(names, string(found[1]))
	}
	if len(names) < 5 {
		t.Fatalf("only %q are taken from the environment", names)
	}
	return names
}

func TestCompose(t *testing.T) {
	file := filepath.Join(composeDir, "compose.yaml")
	project, err := loader.LoadWithContext(t.Context(), composetypes.ConfigDetails{
		WorkingDir: composeDir, ConfigFiles: []composetypes.ConfigFile{{Filename: file}}, Environment: composetypes.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"app-1", "app-2", "c1", "c2", "c3", "s1", "s2", "sidecar-1", "sidecar-2"}; !slices.Equal(project.ServiceNames(), want) {
		t.Errorf("services %q, want %q", project.ServiceNames(), want)
	}
	for i, name := range []string{"sidecar-1", "sidecar-2"} {
		s := project.Services[name]
		if want := "service:" + []string{"app-1", "app-2"}[i]; s.NetworkMode != want || !s.ReadOnly || s.Build == nil {
			t.Errorf("%s: network_mode %q, read_only %v, build %v; want %q, true and a Dockerfile", name, s.NetworkMode, s.ReadOnly, s.Build, want)
		}
		for _, secret := range secrets(t, composeDir) {
			if value := s.Environment[secret]; value == nil || *value == "" {
				t.Errorf("%s: ringside.yaml takes %s from the environment, which does not have it", name, secret)
			}
		}
		for _, v := range s.Volumes {
			if v.Type == composetypes.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// kustomization is what examples/kubernetes/kustomization.yaml may say.
type kustomization struct {
	APIVersion         string   `json:"apiVersion"`
	Kind               string   `json:"kind"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name  string   `json:"name"`
		Files []string `json:"files"`
	} `json:"configMapGenerator"`
}

// strict decodes one object; a field that its type does not have is an error.
func strict[T any](t *testing.T, name string) *T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(read(t, kubernetesDir, name), &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &object
}

func TestKubernetes(t *testing.T) {
	all := strict[kustomization](t, "kustomization.yaml")
	if want := []string{"deployment.yaml", "service.yaml", "secret.yaml", "networkpolicy.yaml"}; !slices.Equal(all.Resources, want) {
		t.Errorf("kustomization.yaml has the resources %q; this test looks at %q", all.Resources, want)
	}
	deployment := strict[appsv1.Deployment](t, "deployment.yaml")
	service := strict[corev1.Service](t, "service.yaml")
	secret := strict[corev1.Secret](t, "secret.yaml")
	policy := strict[networkingv1.NetworkPolicy](t, "networkpolicy.yaml")
	for what, got := range map[string][2]string{
		"deployment": {deployment.APIVersion + " " + deployment.Kind, "apps/v1 Deployment"}, "service": {service.APIVersion + " " + service.Kind, "v1 Service"},
		"secret": {secret.APIVersion + " " + secret.Kind, "v1 Secret"}, "policy": {policy.APIVersion + " " + policy.Kind, "networking.k8s.io/v1 NetworkPolicy"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", what, got[0], got[1])
		}
	}
	pod := deployment.Spec.Template
	for what, selector := range map[string]map[string]string{
		"deployment": deployment.Spec.Selector.MatchLabels, "service": service.Spec.Selector, "policy": policy.Spec.PodSelector.MatchLabels,
	} {
		for name, value := range selector {
			if len(selector) == 0 || pod.Labels[name] != value {
				t.Errorf("the %s selects %s=%s; the pods have %v", what, name, value, pod.Labels)
			}
		}
	}
	for _, name := range secrets(t, kubernetesDir) {
		if secret.StringData[name] == "" {
			t.Errorf("ringside.yaml takes %s from the environment; the Secret does not have it", name)
		}
	}
	if !bytes.Contains(read(t, kubernetesDir, "ringside.yaml"), []byte(service.Name+":7946")) {
		t.Errorf("ringside.yaml does not join %s:7946", service.Name)
	}
	if len(all.ConfigMapGenerator) != 1 || all.ConfigMapGenerator[0].Name != pod.Spec.Volumes[0].ConfigMap.Name {
		t.Errorf("the ConfigMap %v is not the one that is mounted, %v", all.ConfigMapGenerator, pod.Spec.Volumes[0].ConfigMap)
	}
	checkSidecar(t, pod.Spec, secret.Name)
}

// checkSidecar looks at what makes an init container a sidecar that is well behaved.
func checkSidecar(t *testing.T, pod corev1.PodSpec, secret string) {
	t.Helper()
	c := pod.InitContainers[0]
	switch always := corev1.ContainerRestartPolicyAlways; {
	case c.RestartPolicy == nil || *c.RestartPolicy != always:
		t.Errorf("restartPolicy %v: it is no native sidecar", c.RestartPolicy)
	case c.StartupProbe.Exec == nil || c.ReadinessProbe.Exec == nil || c.LivenessProbe.Exec == nil:
		t.Error("a probe is no command: the admin address answers without the token only inside the container")
	case !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot:
		t.Error("the sidecar may do more than it must")
	case c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero():
		t.Errorf("resources %v", c.Resources)
	case c.EnvFrom[0].SecretRef.Name != secret:
		t.Errorf("the environment is that of %s", c.EnvFrom[0].SecretRef.Name)
	case pod.Containers[0].Lifecycle.PreStop.Exec == nil || *pod.TerminationGracePeriodSeconds < 30:
		t.Error("the application's last requests are cut off")
	}
}
