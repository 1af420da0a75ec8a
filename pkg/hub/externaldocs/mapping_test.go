package externaldocs_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/externaldocs"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
)

func Example() {
	c, _ := externaldocs.Condition([]externaldata.Status{
		{Key: "owners", Reason: "Invalid", Message: "line 3, column 1: key \"web\" is already used", From: "owners.yaml of commit 4c1f"}, {Key: "freeze", Known: true},
	})
	fmt.Println(c.Status, c.Reason, c.Message)
	// Output: False Invalid verdicts that read them are Unknown: owners: line 3, column 1: key "web" is already used (last read: owners.yaml of commit 4c1f)
}

func TestToSource(t *testing.T) {
	size := int32(7)
	https := func(secret string, ca string) v1alpha1.ExternalDocument {
		return v1alpha1.ExternalDocument{Name: "h", HTTPS: &v1alpha1.ExternalHTTPS{
			URL: "https://a/b", CABundle: ca, Interval: &metav1.Duration{Duration: time.Minute}, SecretRef: &v1alpha1.LocalSecretReference{Name: secret},
		}}
	}
	secrets := map[string]map[string][]byte{"both": {"token": []byte("t\n"), "ca.crt": []byte("CA")}, "ca": {"ca.crt": []byte("CA")}, "none": {"x": nil}}
	secret := func(name string) (map[string][]byte, string, bool) {
		if data, ok := secrets[name]; ok {
			return data, "", false
		}
		return nil, "Secret " + name + " is " + name, name == "pending"
	}
	for name, c := range map[string]struct {
		is   v1alpha1.ExternalDocument
		want externaldata.Document
	}{
		"file": {
			v1alpha1.ExternalDocument{Name: "f", File: "x.yaml", MaxBytes: &size, MaxAge: &metav1.Duration{Duration: time.Hour}, Schema: &runtime.RawExtension{Raw: []byte("{}")}},
			externaldata.Document{Key: "f", File: "x.yaml", MaxBytes: 7, MaxAge: time.Hour, Schema: []byte("{}")},
		},
		"ConfigMap": {
			v1alpha1.ExternalDocument{Name: "c", ConfigMap: &v1alpha1.ExternalConfigMap{Name: "n", Key: "k"}},
			externaldata.Document{Key: "c", ConfigMap: &externaldata.ConfigMapKey{Name: "n", Key: "k"}, MaxBytes: externaldata.DefaultMaxBytes},
		},
		"token":        {https("both", ""), externaldata.Document{HTTPS: &externaldata.HTTPS{Token: "t", CA: []byte("CA")}}},
		"its own CA":   {https("both", "own"), externaldata.Document{HTTPS: &externaldata.HTTPS{Token: "t", CA: []byte("own")}}},
		"CA":           {https("ca", ""), externaldata.Document{HTTPS: &externaldata.HTTPS{CA: []byte("CA")}}},
		"nothing":      {https("none", ""), externaldata.Document{HTTPS: &externaldata.HTTPS{}, Problem: "Secret none has neither token nor ca.crt"}},
		"no Secret":    {https("absent", ""), externaldata.Document{HTTPS: &externaldata.HTTPS{}, Problem: "Secret absent is absent"}},
		"not read yet": {https("pending", ""), externaldata.Document{HTTPS: &externaldata.HTTPS{}, Problem: "Secret pending is pending", Pending: true}},
	} {
		ps := &v1alpha1.PolicySource{Spec: v1alpha1.PolicySourceSpec{External: []v1alpha1.ExternalDocument{c.is}}}
		ps.Name = "git"
		if h := c.want.HTTPS; h != nil {
			c.want.Key, c.want.Interval, c.want.MaxBytes, h.URL = "h", time.Minute, externaldata.DefaultMaxBytes, "https://a/b"
			if names := externaldocs.SecretsOf(ps); len(names) != 1 || names[0] != c.is.HTTPS.SecretRef.Name {
				t.Errorf("%s: Secrets %v", name, names)
			}
		}
		got := externaldocs.ToSource(ps, secret)
		if want := (externaldata.Source{Name: "git", Documents: []externaldata.Document{c.want}}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestStatuses(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	list := []externaldata.Status{{Key: "a", Known: true, Reason: "Current", At: at, Bytes: 3, Digest: "d", From: strings.Repeat("x", 2000)}, {Key: "b", Reason: "NotRead", Message: "it has not been read yet"}}
	first := externaldocs.ToStatus(list, nil)
	if len(first) != 2 || !first[0].LastRead.Equal(&metav1.Time{Time: at.Truncate(time.Second)}) || len(first[0].From) != 1024 || first[1].LastRead != nil || first[1].Known {
		t.Errorf("%+v", first)
	}
	list[0].At = at.Add(30 * time.Second)
	if next := externaldocs.ToStatus(list, first); !reflect.DeepEqual(next, first) {
		t.Error("a status is written for half a minute")
	}
	list[0].At = at.Add(2 * time.Minute)
	if next := externaldocs.ToStatus(list, first); next[0].LastRead.Equal(first[0].LastRead) {
		t.Error("when it was last read stays what it was")
	}
	if externaldocs.ToStatus(nil, first) != nil {
		t.Error("what is gone has a status")
	}
	for want, list := range map[string][]externaldata.Status{
		"True Current":    {{Key: "a", Known: true, Reason: "Unreachable"}},
		"False TooOld":    {{Key: "a", Reason: "NotRead"}, {Key: "b", Reason: "TooOld"}, {Key: "c", Reason: "Invalid"}},
		"Unknown NotRead": {{Key: "a", Known: true}, {Key: "b", Reason: "NotRead"}},
	} {
		if c, some := externaldocs.Condition(list); !some || string(c.Status)+" "+c.Reason != want {
			t.Errorf("%v: %+v", list, c)
		}
	}
	if _, some := externaldocs.Condition(nil); some {
		t.Error("no documents have a condition")
	}
}

func TestCheckoutOf(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := &policysource.State{
		Policies: map[string]policysource.Policies{
			"current": {Commit: policysource.Commit{Hash: "c", Path: "p"}, Current: true, Since: since},
			"former":  {Commit: policysource.Commit{Hash: "c"}, Since: since},
		},
		Status: map[string]policysource.Status{
			"current": {Contact: since.Add(time.Hour)}, "former": {Contact: since.Add(time.Hour)}, "new": {Phase: policysource.Pending}, "broken": {Phase: policysource.Fetch},
		},
	}
	for source, want := range map[string]externaldata.Checkout{
		"current": {Commit: "c", Path: "p", At: since.Add(time.Hour)}, "former": {Commit: "c", At: since}, "new": {Pending: true}, "broken": {}, "nobody": {Pending: true},
	} {
		if got := externaldocs.CheckoutOf(state, source); got != want {
			t.Errorf("%s: %+v, want %+v", source, got, want)
		}
	}
}
