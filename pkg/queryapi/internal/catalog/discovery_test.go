package catalog_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/test/kube/assets"
)

// serve answers discovery below /fleet and /members, as the query API does.
func (r *real) serve(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		target, err := route.Parse(request.URL)
		if err == nil {
			snapshot := r.index.Snapshot()
			view := r.catalog.View(snapshot)
			if target.Member != "" {
				view = view.ForMember(snapshot, target.Member)
			}
			err = view.ServeDiscovery(w, request, snapshot, target)
		}
		if err != nil {
			status, is := err.(apierrors.APIStatus) //nolint:errorlint // the door says so
			if !is {
				t.Errorf("%s: %v", request.URL, err)
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Status().Code))
			body, _ := json.Marshal(status.Status()) //nolint:errcheck // a Status can be encoded
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func clientOf(t *testing.T, host string) *discovery.DiscoveryClient {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: host})
	ok(t, err)
	return client
}

// names are the resources that a client sees and can list, with all that
// discovery says of them.
func names(t *testing.T, client *discovery.DiscoveryClient) (map[string]string, []string) {
	t.Helper()
	groups, lists, err := client.ServerGroupsAndResources()
	ok(t, err)
	out := map[string]string{}
	for _, list := range lists {
		for _, res := range list.APIResources {
			if slices.Contains(res.Verbs, "list") && slices.Contains(res.Verbs, "watch") && !strings.Contains(res.Name, "/") {
				res.Verbs, res.StorageVersionHash = nil, ""
				res.Group, res.Version = "", ""
				if len(res.Categories) == 0 {
					res.Categories = nil
				}
				if len(res.ShortNames) == 0 {
					res.ShortNames = nil
				}
				out[list.GroupVersion+"/"+res.Name] = asJSON(t, res)
			}
		}
	}
	var order []string
	for _, g := range groups {
		order = append(order, g.Name)
	}
	return out, order
}

func (r *real) discovery(t *testing.T) {
	server := r.serve(t)
	real, err := discovery.NewDiscoveryClientForConfig(r.config)
	ok(t, err)
	want, wantGroups := names(t, real)
	// What is not kept is not there, and of a custom kind the held version only.
	delete(want, "storage.k8s.io/v1/csidrivers")
	delete(want, "shop.example/v1beta1/widgets")
	for _, prefix := range []string{"/fleet", "/members/" + memberName} {
		for _, legacy := range []bool{false, true} {
			client := clientOf(t, server.URL+prefix)
			client.UseLegacyDiscovery = legacy
			got, groups := names(t, client)
			for name, res := range want {
				if got[name] != res {
					t.Errorf("%s (legacy %t): %s is\n%s, want\n%s", prefix, legacy, name, got[name], res)
				}
			}
			for name := range got {
				if want[name] == "" {
					t.Errorf("%s (legacy %t): %s is served and should not be", prefix, legacy, name)
				}
			}
			common := slices.DeleteFunc(slices.Clone(wantGroups), func(g string) bool { return !slices.Contains(groups, g) })
			if !slices.Equal(groups, common) {
				t.Errorf("%s (legacy %t): groups %v, want %v", prefix, legacy, groups, common)
			}
		}
	}
	info, err := clientOf(t, server.URL+"/fleet").ServerVersion()
	ok(t, err)
	own, err := real.ServerVersion()
	ok(t, err)
	if info.GitVersion != own.GitVersion || info.Major != own.Major || info.Minor != own.Minor {
		t.Errorf("version %+v, want %+v", info, own)
	}
	if _, err := clientOf(t, server.URL+"/fleet").ServerResourcesForGroupVersion("nobody.example/v1"); !apierrors.IsNotFound(err) {
		t.Errorf("a strange group: %v", err)
	}
	if _, lists, err := clientOf(t, server.URL+"/members/fleet/other").ServerGroupsAndResources(); err != nil || len(lists) > 3 { // what is requested, and not kept
		t.Errorf("a member that does not exist serves %v (%v)", lists, err)
	}
	r.etags(t, server.URL+"/fleet/apis")
}

// etags checks that a document that is known is not sent again, in either
// version of the aggregated one.
func (r *real) etags(t *testing.T, url string) {
	for _, version := range []string{"v2", "v2beta1"} {
		accept := "application/json;g=apidiscovery.k8s.io;v=" + version + ";as=APIGroupDiscoveryList"
		get := func(etag string) *http.Response {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			ok(t, err)
			request.Header.Set("Accept", accept)
			if etag != "" {
				request.Header.Set("If-None-Match", etag)
			}
			response, err := http.DefaultClient.Do(request)
			ok(t, err)
			response.Body.Close()
			return response
		}
		first := get("")
		if first.StatusCode != http.StatusOK || first.Header.Get("Etag") == "" || !strings.Contains(first.Header.Get("Content-Type"), "v="+version) {
			t.Errorf("%s: %s, etag %q, content %q", version, first.Status, first.Header.Get("Etag"), first.Header.Get("Content-Type"))
		}
		if again := get(first.Header.Get("Etag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: requested again: %s", version, again.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func (r *real) kubectl(t *testing.T) {
	built, err := assets.Ensure(t.Context(), assets.Options{Progress: os.Stderr}, assets.Kubectl)
	ok(t, err)
	server := r.serve(t)
	for _, prefix := range []string{"/fleet", "/members/" + memberName} {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		ok(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "`+
			server.URL+prefix+`"}}], contexts: [{name: c, context: {cluster: c}}]}`), 0o600))
		run := func(args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), built.Binary(assets.Kubectl), append([]string{"--kubeconfig", kubeconfig, "--cache-dir", t.TempDir()}, args...)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("kubectl %v: %v\n%s", args, err, out)
			}
			return string(out)
		}
		for _, tt := range []struct {
			args []string
			want []string
		}{
			{[]string{"api-resources"}, []string{"pods", "po ", "deployments", "widgets", "wd ", "selfsubjectaccessreviews", "customresourcedefinitions"}},
			{[]string{"api-versions"}, []string{"apps/v1\n", "autoscaling/v1\n", "autoscaling/v2\n", "shop.example/v1\n", "\nv1\n"}},
			{[]string{"version"}, []string{"Server Version: v1."}},
			{[]string{"explain", "pods.spec.containers"}, []string{"KIND:       Pod", "FIELD: containers <[]Container>", "imagePullPolicy"}},
			{[]string{"explain", "hpa.spec.metrics", "--api-version=autoscaling/v2"}, []string{"GROUP:      autoscaling", "containerResource"}},
			{[]string{"explain", "crd.spec"}, []string{"KIND:       CustomResourceDefinition", "versions"}},
			{[]string{"explain", "apiservices.spec"}, []string{"KIND:       APIService", "groupPriorityMinimum"}},
			{[]string{"explain", "wd.spec"}, []string{"KIND:       Widget", "What the widget is.", "size\t<integer>", "Its size in millimetres."}},
			{[]string{"explain", "bins"}, []string{"KIND:       Bin"}},
		} {
			out := run(tt.args...)
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s: kubectl %v says no %q:\n%s", prefix, tt.args, want, out)
				}
			}
		}
	}
}

// openapi reads every document, in both encodings.
func (r *real) openapi(t *testing.T) {
	server := r.serve(t)
	config := &rest.Config{Host: server.URL + "/fleet"}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	ok(t, err)
	paths, err := openapi.NewClient(client.RESTClient()).Paths()
	ok(t, err)
	if paths["api/v1"] == nil || paths["apis/shop.example/v1"] == nil {
		t.Fatalf("documents %v", paths)
	}
	for path, gv := range paths {
		body, err := gv.Schema("application/json")
		ok(t, err)
		var doc struct {
			Paths      map[string]any
			Components struct{ Schemas map[string]any }
		}
		ok(t, json.Unmarshal(body, &doc))
		if len(doc.Paths) == 0 || len(doc.Components.Schemas) == 0 {
			t.Errorf("%s: %d paths, %d schemas", path, len(doc.Paths), len(doc.Components.Schemas))
		}
		refs(t, path, doc.Components.Schemas, string(body))
		if _, err := gv.Schema("application/com.github.proto-openapi.spec.v3.v1.0+protobuf"); err != nil {
			t.Errorf("%s: protobuf: %v", path, err)
		}
	}
	response, err := http.Get(server.URL + "/fleet/openapi/v2") // the test ends with its server
	ok(t, err)
	body, err := io.ReadAll(response.Body)
	ok(t, err)
	response.Body.Close()
	var swagger spec.Swagger
	ok(t, json.Unmarshal(body, &swagger))
	for _, ref := range regexp.MustCompile(`"#/definitions/([^"]+)"`).FindAllStringSubmatch(string(body), -1) {
		if _, known := swagger.Definitions[ref[1]]; !known {
			t.Errorf("/openapi/v2 refers to %s, which it does not have", ref[1])
		}
	}
	if len(swagger.Definitions) < 100 || len(swagger.Paths.Paths) < 50 {
		t.Errorf("/openapi/v2: %s, %d definitions, %d paths", response.Status, len(swagger.Definitions), len(swagger.Paths.Paths))
	}
	http.DefaultClient.CloseIdleConnections()
}

// refs checks that every schema that is referred to is there.
func refs(t *testing.T, path string, schemas map[string]any, body string) {
	t.Helper()
	const ref = `"$ref":"#/components/schemas/`
	for _, rest := range strings.Split(body, ref)[1:] {
		if name, _, _ := strings.Cut(rest, `"`); schemas[name] == nil {
			t.Errorf("%s: nothing is at %q", path, name)
			return
		}
	}
}
