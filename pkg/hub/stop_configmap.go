package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/api"
)

// stopName is the ConfigMap that stops all actions while it exists. It is not an
// annotation on the Lease because permission to stop should not include permission to
// take the Lease, because the leader rewrites the Lease every other second, and because
// kubectl create and delete suffice if the federator command is not available.
const stopName = "federator-stop"

// Keys of the data of a stop's ConfigMap.
const (
	stopScopeKey  = "scope"
	stopNameKey   = "name"
	stopReasonKey = "reason"
)

// Scopes of a stop.
const (
	StopAll    = ""
	StopPolicy = "policy"
	StopMember = "member"
	StopSource = "source"
)

// StopScope is what a stop stops. The zero value is everything.
type StopScope struct {
	Scope string
	Name  string // of the FleetPolicy, the member (<namespace>/<name>) or the PolicySource
}

// String returns scope and name.
func (s StopScope) String() string {
	if s.Scope == StopAll {
		return "all"
	}
	return s.Scope + " " + s.Name
}

// Actions says what it stops, as the start of a sentence.
func (s StopScope) Actions() string {
	if s.Scope == StopAll {
		return "all actions"
	}
	return "actions of " + s.String()
}

// sentence says what is stopped.
func (s StopScope) sentence() string { return s.Actions() + " are stopped" }

// Validate returns what is wrong with it.
func (s StopScope) Validate() error {
	switch s.Scope {
	case StopAll:
		if s.Name != "" {
			return fmt.Errorf("a stop of everything has no name, here %q", s.Name)
		}
	case StopPolicy, StopSource:
		if s.Name == "" || strings.Contains(s.Name, "/") {
			return fmt.Errorf("%q is not the name of a %s", s.Name, s.Scope)
		}
	case StopMember:
		if namespace, name, ok := strings.Cut(s.Name, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("member %q is not <namespace>/<name>", s.Name)
		}
	default:
		return fmt.Errorf("scope %q is not %s, %s or %s", s.Scope, StopPolicy, StopMember, StopSource)
	}
	return nil
}

// maxConfigMapName is the length that a name may have.
const maxConfigMapName = 253

// configMap returns the name of the ConfigMap. Two scopes never share one: a namespace has no
// dot, so that a member's name is unique with one instead of its slash.
func (s StopScope) configMap() string {
	if s.Scope == StopAll {
		return stopName
	}
	name := stopName + "-" + s.Scope + "-" + strings.Replace(s.Name, "/", ".", 1)
	if len(name) <= maxConfigMapName {
		return name
	}
	sum := sha256.Sum256([]byte(s.String()))
	return name[:maxConfigMapName-21] + "-" + hex.EncodeToString(sum[:10])
}

// ActiveStop is a stop as its ConfigMap says.
type ActiveStop struct {
	StopScope

	ConfigMap string // its name
	UID       string
	Since     time.Time
	By        string // its field manager; "" if that is not known
	Reason    string
	Text      string // by whom, since when and why
}

// readStop reads a ConfigMap. is is false for one that is no stop. One that looks like a stop
// and is not understood stops everything: somebody wanted something not to be written.
func readStop(m *corev1.ConfigMap) (f ActiveStop, is bool) {
	_, labelled := m.Labels[api.StopKey]
	if m.Name != stopName && !labelled && !strings.HasPrefix(m.Name, stopName+"-") {
		return ActiveStop{}, false
	}
	f = ActiveStop{
		ConfigMap: m.Name, UID: string(m.UID), Since: m.CreationTimestamp.Time, Text: describeStop(m),
		By: oneLine(fieldManagerOf(m.ManagedFields, "")), Reason: oneLine(m.Data[stopReasonKey]),
	}
	if m.Name == stopName {
		return f, true
	}
	of := StopScope{m.Data[stopScopeKey], m.Data[stopNameKey]}
	err := of.Validate()
	switch {
	case err == nil && of.Scope == StopAll:
		err = fmt.Errorf("data %s is missing", stopScopeKey)
	case err == nil && of.configMap() != m.Name:
		err = fmt.Errorf("that of %s is named %s", of, of.configMap())
	}
	if err != nil {
		f.Text = fmt.Sprintf("ConfigMap %s is malformed, which stops everything: %s; it was created %s", m.Name, oneLine(err.Error()), f.Text)
		return f, true
	}
	f.StopScope = of
	return f, true
}

// describeStop returns who has made a stop, since when and why.
func describeStop(m *corev1.ConfigMap) string {
	text := "since " + m.CreationTimestamp.UTC().Format(time.RFC3339)
	if by := oneLine(fieldManagerOf(m.ManagedFields, "")); by != "" {
		text = "by " + by + " " + text
	}
	if why := oneLine(m.Data[stopReasonKey]); why != "" {
		text += ": " + why
	}
	return text
}

// ReadStop reads a ConfigMap of federator's namespace. is is false for one that is no stop. One that looks
// like a stop and is not understood stops everything, and malformed is set.
func ReadStop(m *corev1.ConfigMap) (stop ActiveStop, malformed, is bool) {
	f, is := readStop(m)
	return f, is && f.Scope == StopAll && m.Name != stopName, is
}

// CreateStop creates the ConfigMap that stops actions, with by as its field manager. It
// returns who has stopped them, since when and why, and whether they had not been stopped
// before. Only DeleteStop ends it.
func CreateStop(ctx context.Context, client kubernetes.Interface, namespace string, of StopScope, by, reason string) (text string, created bool, err error) {
	if err := of.Validate(); err != nil {
		return "", false, err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: of.configMap()}, Data: map[string]string{}}
	m.Labels = map[string]string{"app.kubernetes.io/managed-by": "federator", api.StopKey: "all"}
	if of.Scope != StopAll {
		m.Labels[api.StopKey] = of.Scope
		m.Data[stopScopeKey], m.Data[stopNameKey] = of.Scope, of.Name
	}
	if reason = oneLine(reason); reason != "" {
		m.Data[stopReasonKey] = reason
	}
	configMaps := client.CoreV1().ConfigMaps(namespace)
	made, err := configMaps.Create(ctx, m, metav1.CreateOptions{FieldManager: by})
	if created = !apierrors.IsAlreadyExists(err); !created {
		made, err = configMaps.Get(ctx, m.Name, metav1.GetOptions{})
	}
	if err != nil {
		return "", false, err
	}
	return describeStop(made), created, nil
}

// DeleteStop deletes the ConfigMap that stops actions, and returns who had stopped them,
// since when and why; "" if they were not stopped.
func DeleteStop(ctx context.Context, client kubernetes.Interface, namespace string, of StopScope) (string, error) {
	if err := of.Validate(); err != nil {
		return "", err
	}
	configMaps := client.CoreV1().ConfigMaps(namespace)
	m, err := configMaps.Get(ctx, of.configMap(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// Not one that was created in the meantime.
	err = configMaps.Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
	return describeStop(m), err
}
