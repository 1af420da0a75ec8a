package source

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

const plugin = `{"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/login", "args": ["--in"], "env": [{"name": "REGION", "value": "eu"}], "interactiveMode": "Never", "provideClusterInfo": true}`

// profile is a ClusterProfile that lists access providers, written as YAML.
func profile(t *testing.T, p *accessProviders, listed string) clusterinformers.Spec {
	t.Helper()
	u := objectOf(t, "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ClusterProfile\nmetadata: {namespace: inventory, name: a, uid: u}\nspec: {clusterManager: {name: x}}\nstatus:\n  version: {kubernetes: v1.36.3}\n"+listed)
	return trimClusterProfile(u, p).member(secrets{}).Spec
}

func providersOf(t *testing.T, text string) *accessProviders {
	t.Helper()
	file := filepath.Join(t.TempDir(), "providers.json")
	writeFile(t, file, []byte(text))
	providers, err := readProviders(file)
	must(t, err)
	return &accessProviders{file: file, runner: []string{"/federator", "exec-plugin", "--"}, log: slog.New(newLogs(t)), env: []string{"REGION", "ZONE"}, providers: providers}
}

// TestClusterProfiles_RunOnlyOurPrograms: which program runs is ours to say, and what a profile adds to it, too.
func TestClusterProfiles_RunOnlyOurPrograms(t *testing.T) {
	ca, _ := kubeconfigtest.KeyPair()
	ca64 := base64.StdEncoding.EncodeToString(ca)
	for what, tc := range map[string]struct {
		providers string // of which all have our plugin
		listed    string
		args      []string // of it, after our own
		env       []string
		reason    connection.Reason
		says      string
	}{
		"the first of ours": {`{"name": "b"}, {"name": "a"}`, "  accessProviders:\n  - {name: a, cluster: {server: https://a}}\n  - {name: b, cluster: {server: https://b}}\n", nil, []string{"REGION=eu"}, "", ""},
		"the older field":   {`{"name": "b"}`, "  credentialProviders:\n  - {name: b, cluster: {server: https://b}}\n", nil, []string{"REGION=eu"}, "", ""},
		"both fields":       {`{"name": "b"}`, "  credentialProviders:\n  - {name: b, cluster: {server: https://old}}\n  accessProviders:\n  - {name: b, cluster: {server: https://b}}\n", nil, []string{"REGION=eu"}, "", ""},
		"none of ours":      {`{"name": "b"}`, "  accessProviders:\n  - {name: z, cluster: {server: https://a}}\n  - {name: a, cluster: {server: https://b}}\n", nil, nil, connection.NoKubeconfig, `it lists "a", "z"`},
		"none":              {`{"name": "b"}`, "", nil, nil, connection.NoKubeconfig, "it lists none"},
		"additions that are not allowed": {
			`{"name": "b"}`, extended("additional-args", `["--evil"]`) + also("additional-envs", `{"LD_PRELOAD": "/evil.so"}`), nil, []string{"REGION=eu"}, "", "",
		},
		"additions that are allowed": {
			`{"name": "b", "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace"}`,
			extended("additional-args", `["--cluster=a"]`) + also("additional-envs", `{"REGION": "us", "ZONE": "1"}`),
			[]string{"--cluster=a"},
			[]string{"REGION=us", "ZONE=1"},
			"", "",
		},
		"ours before theirs": {
			`{"name": "b", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}`, extended("additional-envs", `{"REGION": "us", "ZONE": "1"}`), nil, []string{"REGION=eu", "ZONE=1"}, "", "",
		},
		"a variable that we do not name": {
			`{"name": "b", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}`, extended("additional-envs", `{"BASH_ENV": "$(evil)"}`), nil, nil, connection.ExecPlugin, `sets environment variable "BASH_ENV"`,
		},
		"a path by another name": {
			`{"name": "b", "profileSourcedEnvVarsPolicy": "Replace"}`, extended("additional-envs", `{"PATH=/evil:": "x"}`), nil, nil, connection.ExecPlugin, `sets environment variable "PATH=/evil:"`,
		},
		"a large extension":    {`{"name": "b", "profileSourcedCLIArgsPolicy": "Append"}`, extended("additional-args", `["`+strings.Repeat("x", 5000)+`"]`), nil, nil, connection.InvalidKubeconfig, "more than 4096"},
		"what nobody looks at": {`{"name": "b"}`, extended("additional-envs", `null`) + also("additional-args", `{"a": 1}`), nil, []string{"REGION=eu"}, "", ""},
		"a library of theirs": {
			`{"name": "b", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}`, extended("additional-envs", `{"LD_PRELOAD": "/evil.so"}`), nil, nil, connection.ExecPlugin, `"LD_PRELOAD"`,
		},
		"a path of theirs": {
			`{"name": "b", "profileSourcedEnvVarsPolicy": "Replace"}`, extended("additional-envs", `{"PATH": "/evil"}`), nil, nil, connection.ExecPlugin, `"PATH"`,
		},
		"null":           {`{"name": "b", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"}`, extended("additional-envs", "null"), nil, nil, connection.InvalidKubeconfig, "additional-envs of the cluster"},
		"another type":   {`{"name": "b", "profileSourcedCLIArgsPolicy": "Append"}`, extended("additional-args", `{"a": 1}`), nil, nil, connection.InvalidKubeconfig, "additional-args of the cluster"},
		"numbers":        {`{"name": "b", "profileSourcedEnvVarsPolicy": "Replace"}`, extended("additional-envs", `{"A": 1}`), nil, nil, connection.InvalidKubeconfig, "additional-envs of the cluster"},
		"a proxy":        {`{"name": "b"}`, "  accessProviders:\n  - {name: b, cluster: {server: https://b, proxy-url: http://proxy}}\n", nil, nil, connection.ProxyURL, ""},
		"no TLS":         {`{"name": "b"}`, "  accessProviders:\n  - {name: b, cluster: {server: https://b, insecure-skip-tls-verify: true}}\n", nil, nil, connection.InsecureTLS, ""},
		"a file of ours": {`{"name": "b"}`, "  accessProviders:\n  - {name: b, cluster: {server: https://b, certificate-authority: /etc/passwd}}\n", nil, nil, connection.FilePath, ""},
	} {
		t.Run(what, func(t *testing.T) {
			p := providersOf(t, `{"providers": [`+strings.ReplaceAll(tc.providers, `"}`, `", "execConfig": `+plugin+`}`)+`]}`)
			before := fmt.Sprintf("%+v", *p.providers[0].ExecConfig)
			s := profile(t, p, strings.NewReplacer("https://b\n", "https://b\n      certificate-authority-data: "+ca64+"\n", "https://b}", "https://b, certificate-authority-data: "+ca64+"}", "https://b, proxy", "https://b, certificate-authority-data: "+ca64+", proxy").Replace(tc.listed))
			config, refused := (*rest.Config)(nil), s.Refused
			if refused == nil {
				config, refused = memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{Plugin: s.Plugin})
			}
			if after := fmt.Sprintf("%+v", *p.providers[0].ExecConfig); after != before {
				t.Errorf("the configuration was changed: %s", after)
			}
			if tc.reason != "" {
				if refused == nil || refused.Reason != tc.reason || !strings.Contains(refused.Message, tc.says) {
					t.Errorf("%v, want %s: %s", refused, tc.reason, tc.says)
				}
				return
			}
			if refused != nil {
				t.Fatal(refused)
			}
			exec := config.ExecProvider
			var env []string
			for _, v := range exec.Env {
				env = append(env, v.Name+"="+v.Value)
			}
			if config.Host != "https://b" || exec.Command != "/federator" || !reflect.DeepEqual(exec.Args, append([]string{"exec-plugin", "--", "/bin/login", "--in"}, tc.args...)) || !reflect.DeepEqual(env, tc.env) {
				t.Errorf("%s by %s %q with %q", config.Host, exec.Command, exec.Args, env)
			}
		})
	}
}

// extended lists our provider with an extension, also adds another to it.
func extended(name, value string) string {
	return "  accessProviders:\n  - name: b\n    cluster:\n      server: https://b\n      extensions:\n" + also(name, value)
}

func also(name, value string) string {
	return "      - {name: clusterprofiles.multicluster.x-k8s.io/exec/" + name + ", extension: " + value + "}\n"
}

// TestClusterProfiles_ReloadProviders: a file that is wrong changes nothing.
func TestClusterProfiles_ReloadProviders(t *testing.T) {
	p := providersOf(t, `{"providers": [{"name": "a", "execConfig": `+plugin+`}]}`)
	for _, bad := range []string{"", "{", `{"providers": []}`, `{"providers": [{"name": "a"}]}`} {
		writeFile(t, p.file, []byte(bad))
		if p.reload(); len(p.providers) != 1 || p.providers[0].Name != "a" {
			t.Errorf("after %q: %+v", bad, p.providers)
		}
	}
	writeFile(t, p.file, []byte(`{"providers": [{"name": "b", "execConfig": `+plugin+`}]}`))
	if p.reload(); p.providers[0].Name != "b" {
		t.Errorf("%+v", p.providers)
	}
}

func TestNewClusterProfiles_ValidatesOptions(t *testing.T) {
	good := providersOf(t, `{"providers": [{"name": "a", "execConfig": `+plugin+`}]}`)
	o := ClusterProfilesOptions{Config: &rest.Config{Host: "https://h"}, ProvidersFile: good.file, PluginRunner: []string{"run"}, Logger: slog.New(slog.DiscardHandler)}
	if _, err := NewClusterProfiles(o); err != nil {
		t.Error(err)
	}
	for want, text := range map[string]string{
		"not JSON at byte":                             `{"providers": [`,
		"unknown field":                                `{"provider": []}`,
		"providers: at least one is required":          `{}`,
		"providers[0].name is required":                `{"providers": [{"execConfig": ` + plugin + `}]}`,
		`providers[1].name: another provider is named`: `{"providers": [{"name": "a", "execConfig": ` + plugin + `}, {"name": "a", "execConfig": ` + plugin + `}]}`,
		"providers[0].execConfig.command is required":  `{"providers": [{"name": "a", "execConfig": {}}]}`,
		"execConfig.apiVersion is required":            `{"providers": [{"name": "a", "execConfig": {"command": "x"}}]}`,
		"provideClusterInfo must be true":              `{"providers": [{"name": "a", "execConfig": {"command": "x", "apiVersion": "y"}}]}`,
		`profileSourcedCLIArgsPolicy: "Prepend"`:       `{"providers": [{"name": "a", "profileSourcedCLIArgsPolicy": "Prepend", "execConfig": ` + plugin + `}]}`,
		`profileSourcedEnvVarsPolicy: "Append"`:        `{"providers": [{"name": "a", "profileSourcedEnvVarsPolicy": "Append", "execConfig": ` + plugin + `}]}`,
	} {
		writeFile(t, good.file, []byte(text))
		if _, err := NewClusterProfiles(o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), good.file) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	o.ProvidersFile = filepath.Join(t.TempDir(), "none")
	if _, err := NewClusterProfiles(o); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	o.ProfileEnv = []string{"A=B"}
	if _, err := NewClusterProfiles(o); err == nil || !strings.Contains(err.Error(), `ProfileEnv: "A=B" is not the name`) {
		t.Error(err)
	}
	o.PluginRunner = nil
	if _, err := NewClusterProfiles(o); err == nil || !strings.Contains(err.Error(), "PluginRunner is required") {
		t.Error(err)
	}
}
