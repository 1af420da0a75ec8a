package chart

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestUI_HasItsSecrets: what the configuration names is mounted, and nothing else.
func TestUI_HasItsSecrets(t *testing.T) {
	const oidc = "ui.oidc.issuer=https://a.example,ui.oidc.clientID=ui"
	for what, c := range map[string]struct {
		values  string
		secrets []string // of volumes ui-…
		made    bool     // the key of sessions
		config  []string
	}{
		"by itself":      {"", []string{"federator-ui-session"}, true, []string{"enabled: true", "sessionKeyFile: /etc/federator/ui/session/key"}},
		"disabled":       {"ui.enabled=false," + oidc + ",ui.oidc.clientSecretName=s", nil, false, []string{"enabled: false"}},
		"a key":          {"ui.sessionKeySecretName=k", []string{"k"}, false, []string{"sessionKeyFile: /etc/federator/ui/session/key"}},
		"public client":  {oidc, []string{"federator-ui-session"}, true, []string{"issuer: https://a.example", "clientID: ui", "- email"}},
		"all of OIDC":    {oidc + ",ui.oidc.clientSecretName=s,ui.oidc.caSecretName=ca,ui.oidc.redirectURL=https://b.example/ui/oidc/callback", []string{"federator-ui-session", "s", "ca"}, true, []string{"clientSecretFile: /etc/federator/ui/client/clientSecret", "caFile: /etc/federator/ui/issuer/ca.crt", "redirectURL: https://b.example/ui/oidc/callback"}},
		"without issuer": {"ui.oidc.clientSecretName=s,ui.oidc.caSecretName=ca", []string{"federator-ui-session"}, true, nil},
	} {
		objects := render(t, least("--set", c.values)...)
		s := into[appsv1.StatefulSet](t, find(t, objects, "StatefulSet", "federator"))
		var secrets []string
		for _, v := range s.Spec.Template.Spec.Volumes {
			if !strings.HasPrefix(v.Name, "ui-") {
				continue
			}
			secrets = append(secrets, v.Secret.SecretName)
			if !slices.ContainsFunc(s.Spec.Template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && m.ReadOnly }) {
				t.Errorf("%s: %s is not mounted", what, v.Name)
			}
		}
		if !slices.Equal(secrets, c.secrets) {
			t.Errorf("%s: Secrets %v, want %v", what, secrets, c.secrets)
		}
		made := false
		for _, o := range objects {
			made = made || o.GetKind() == "Secret" && o.GetName() == "federator-ui-session"
		}
		if made != c.made {
			t.Errorf("%s: the key is made: %t", what, made)
		}
		m := into[corev1.ConfigMap](t, find(t, objects, "ConfigMap", "federator"))
		var config struct{ UI map[string]any }
		if err := yaml.Unmarshal([]byte(m.Data["config.yaml"]), &config); err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(config.UI)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.config {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", what, want, text)
			}
		}
		if (config.UI["oidc"] != nil) != strings.Contains(strings.Join(c.config, " "), "https://a.example") && what != "all of OIDC" {
			t.Errorf("%s: %s", what, text)
		}
	}
}
