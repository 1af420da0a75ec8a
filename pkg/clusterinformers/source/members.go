package source

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// MembersOptions is a source of members that are federator's own Members on a hub. Config and
// Logger are required.
type MembersOptions struct {
	Config     *rest.Config
	Namespaces []string // to look in; none means all
	Logger     *slog.Logger
}

// kubeconfigType is the type of a Secret with the kubeconfig of a Member.
const kubeconfigType corev1.SecretType = "federator.dev/kubeconfig"

const (
	kubeconfigKey = "value" // of such a Secret
	memberKind    = "Member"
)

// NewMembers returns the source, or what is wrong with the options.
func NewMembers(o MembersOptions) (clusterinformers.Source, error) {
	return newHubObjects(hubOptions{o.Config, o.Namespaces, o.Logger}, memberObjects{
		source: "Members", versions: []schema.GroupVersion{v1alpha1.SchemeGroupVersion()}, resource: v1alpha1.Members, kind: memberKind,
		trim:          func(u *unstructured.Unstructured) description { return trimMember(u) },
		selectSecrets: secretsOfType(kubeconfigType),
		keepOf:        func(s *corev1.Secret) map[string][]byte { return keepKeys(s.Data, kubeconfigKey) },
	})
}

// hubMember is what is kept of a Member.
type hubMember struct {
	hubObject

	is  v1alpha1.MemberSpec
	err error // it is not understood
}

func trimMember(u *unstructured.Unstructured) *hubMember {
	m := &hubMember{hubObject: hubObjectOf(u)}
	var typed v1alpha1.Member
	if spec, has := u.Object["spec"]; has { // whatever the status is like
		m.err = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": spec}, &typed)
	}
	m.is = typed.Spec
	if m.is.Paused || m.err != nil {
		m.hold.Paused, m.hold.PausedBy = true, managerOf(u, "paused")
	}
	return m
}

// member implements description.
func (m *hubMember) member(all secrets) described {
	s := m.spec(memberKind)
	s.ReadOnly = m.is.ReadOnly
	if m.err != nil { // of a version that the schema does not admit
		refuse(&s, connection.InvalidKubeconfig, "the Member is not understood: %v", m.err)
		return described{Spec: s}
	}
	switch {
	case m.is.Agent != nil:
		s.Agent, s.Credentials = true, "the agent of Member "+s.Name
		return described{Spec: s}
	case m.is.Kubeconfig == nil:
		refuse(&s, connection.NoKubeconfig, "the Member has neither a kubeconfig nor an agent")
		return described{Spec: s}
	}
	read := func(name string) ([]byte, string) {
		data, _ := all.get(m.Namespace, name)
		return data[kubeconfigKey], "Secret " + m.Namespace + "/" + name
	}
	s.Kubeconfig, s.Credentials = read(m.is.Kubeconfig.Secret)
	if len(s.Kubeconfig) == 0 {
		all.refuse(&s, m.Namespace, "Secret %s with key %q and type %s not found", m.is.Kubeconfig.Secret, kubeconfigKey, kubeconfigType)
	}
	if own := m.is.Write; own != nil {
		// Where there is no such Secret nothing is written: others are not used instead.
		s.Write = &clusterinformers.WriteAccess{}
		s.Write.Kubeconfig, s.Write.Credentials = read(own.Secret)
	}
	return described{Spec: s}
}
