package source

import (
	"encoding/json"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// FuzzDescriptions: whatever an object is, describing its member does not panic, which would end the process.
func FuzzDescriptions(f *testing.F) {
	meta := `"metadata":{"name":"a","namespace":"n","uid":"u","annotations":{"a":"b","federator.dev/freeze-until":"x"},"labels":{"a":"b"},"managedFields":[{"manager":"x","fieldsV1":{"f:spec":{"f:paused":{}}}}]}`
	f.Add([]byte(`{` + meta + `,"spec":{"kubeconfig":{"secret":"a"},"write":{"secret":"b"},"paused":true}}`))
	f.Add([]byte(`{` + meta + `,"data":{"name":"YQ==","server":"YQ==","config":"e30=","namespaces":""}}`))
	f.Add([]byte(`{` + meta + `,"spec":{"hubAcceptsClient":true},"status":{"version":{"kubernetes":"v1"},"conditions":[{"type":"ManagedClusterJoined","status":"True"}],"capacity":{"cpu":"1"}}}`))
	f.Add([]byte(`{` + meta + `,"status":{"accessProviders":[{"name":"v","cluster":{"server":"https://a","certificate-authority-data":"YQ==","extensions":[{"name":"clusterprofiles.multicluster.x-k8s.io/exec/additional-envs","extension":{"A":"b"}},{"name":"clusterprofiles.multicluster.x-k8s.io/exec/additional-args","extension":["a"]},{"name":"client.authentication.k8s.io/exec","extension":{"apiVersion":"v1","kind":"Config","x":1}}]}}]}}`))
	providers := &accessProviders{runner: []string{"run"}, log: slog.New(slog.DiscardHandler), providers: []access.Provider{{
		Name: "v", ProfileSourcedCLIArgsPolicy: access.ProfileSourcedCLIArgsPolicyAppend, ProfileSourcedEnvVarsPolicy: access.ProfileSourcedEnvVarsPolicyReplace,
		ExecConfig: &clientcmdapi.ExecConfig{Command: "c", APIVersion: "client.authentication.k8s.io/v1", Env: []clientcmdapi.ExecEnvVar{{Name: "R", Value: "e"}}},
	}}}
	proxy := &clusterProxy{url: "https://p", account: "federator", ca: []byte("x")}
	all := secrets{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if json.Unmarshal(data, &u.Object) != nil || u.Object == nil {
			return
		}
		if b, err := u.MarshalJSON(); err != nil || (&unstructured.Unstructured{}).UnmarshalJSON(b) != nil {
			u.Object["kind"], u.Object["apiVersion"] = "K", "v1"
			if b, err = json.Marshal(u.Object); err != nil || u.UnmarshalJSON(b) != nil { // numbers as the client has them
				return
			}
		}
		for _, d := range []description{trimCluster(u.DeepCopy()), trimMember(u.DeepCopy()), trimArgoCluster(u.DeepCopy()), trimManagedCluster(u.DeepCopy(), proxy), trimClusterProfile(u.DeepCopy(), providers)} {
			s := d.member(all)
			if s.Refused == nil && len(s.Kubeconfig) > 0 {
				memberclient.ParseKubeconfig(s.Kubeconfig, memberclient.Allowed{Plugin: s.Plugin})
			}
		}
	})
}
