package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

// command is what a story has the driver do; each has its own of these.
type command struct {
	Member   string `json:"member"`
	Name     string `json:"name"`
	Replicas int    `json:"replicas"`
	User     string `json:"user"`
	Audience string `json:"audience"`
	Message  string `json:"message"`
	Manifest string `json:"manifest"`
	Resource string `json:"resource"`
	File     string `json:"file"`
	Old      string `json:"old"`
	New      string `json:"new"`
}

// drive serves the driver of the fleet, until the test ends: POST /<what> with a command.
func (f *fleet) drive() string {
	mux := http.NewServeMux()
	for what, do := range map[string]func(*http.Request, command) (any, error){
		"scale": f.scale, "replicas": f.replicas, "commit": f.commit, "restart": f.restart, "cut": f.cut, "mend": f.mend,
		"apply": f.apply, "token": f.giveToken, "revoke": f.revoke, "writers": f.writers,
	} {
		mux.HandleFunc("POST /"+what, func(w http.ResponseWriter, r *http.Request) {
			var c command
			decoder := json.NewDecoder(r.Body)
			decoder.DisallowUnknownFields()
			err := decoder.Decode(&c)
			var answer any
			if err == nil {
				answer, err = do(r, c)
			}
			if err != nil {
				http.Error(w, what+": "+err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(answer) // the story may be over
		})
	}
	server := httptest.NewServer(mux)
	f.t.Cleanup(server.Close)
	return server.URL
}

func (f *fleet) member(name string) (*kube.ControlPlane, error) {
	for i, m := range members {
		if m.Name == name {
			return f.clusters.Members[i], nil
		}
	}
	return nil, fmt.Errorf("there is no member %q", name)
}

// scale sets the replicas of a Deployment on a member.
func (f *fleet) scale(r *http.Request, c command) (any, error) {
	m, err := f.member(c.Member)
	if err != nil {
		return nil, err
	}
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, c.Replicas)
	_, err = m.Client().AppsV1().Deployments("shop").Patch(r.Context(), c.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-scale"})
	return time.Now().UnixMilli(), err
}

// replicas returns those of a Deployment on a member, once they are as many as asked for.
func (f *fleet) replicas(r *http.Request, c command) (any, error) {
	m, err := f.member(c.Member)
	if err != nil {
		return nil, err
	}
	return nil, kube.Until(r.Context(), patience, func() error {
		d, err := m.Client().AppsV1().Deployments("shop").Get(r.Context(), c.Name, metav1.GetOptions{})
		if err == nil && int(*d.Spec.Replicas) != c.Replicas {
			err = fmt.Errorf("%s has %d replicas", c.Name, *d.Spec.Replicas)
		}
		return err
	})
}

// commit changes a file of the repository, and returns the commit.
func (f *fleet) commit(_ *http.Request, c command) (any, error) {
	files := map[string]string{}
	for _, name := range policyFiles {
		text, err := os.ReadFile(filepath.Join(f.repo.Dir, name))
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	if !strings.Contains(files[c.File], c.Old) {
		return nil, fmt.Errorf("%s has no %q", c.File, c.Old)
	}
	files[c.File] = strings.ReplaceAll(files[c.File], c.Old, c.New)
	return f.repo.Commit(files, "-m", c.Message)
}

// restart ends federator and starts it again, at the same address.
func (f *fleet) restart(*http.Request, command) (any, error) {
	if err := f.federator.Stop(30 * time.Second); err != nil {
		return nil, err
	}
	f.serve()
	return nil, nil
}

// cut and mend break the link of a member, and repair it.
func (f *fleet) cut(_ *http.Request, c command) (any, error) {
	return nil, f.link(c, tcpproxy.Mode{State: tcpproxy.Cut})
}

func (f *fleet) mend(_ *http.Request, c command) (any, error) {
	return nil, f.link(c, tcpproxy.Mode{})
}

func (f *fleet) link(c command, mode tcpproxy.Mode) error {
	m, err := f.member(c.Member)
	if err != nil {
		return err
	}
	return m.Proxy.Set(mode)
}

// apply applies manifests on the hub; $REPO is where the repository is.
func (f *fleet) apply(r *http.Request, c command) (any, error) {
	return nil, f.clusters.Hub.Apply(r.Context(), []byte(strings.ReplaceAll(c.Manifest, "$REPO", "file://"+f.repo.Dir)))
}

func (f *fleet) giveToken(r *http.Request, c command) (any, error) {
	return f.token(r.Context(), c.User, c.Audience)
}

// revoke deletes a ServiceAccount, and with it what its tokens are worth.
func (f *fleet) revoke(r *http.Request, c command) (any, error) {
	return nil, f.clusters.Hub.Client().CoreV1().ServiceAccounts("teams").Delete(r.Context(), c.User, metav1.DeleteOptions{})
}

// writers returns who has created objects of a resource on the hub, by its own audit log.
func (f *fleet) writers(_ *http.Request, c command) (any, error) {
	events, err := f.clusters.Hub.Audit()
	if err != nil {
		return nil, err
	}
	users := []string{}
	for _, e := range events {
		if e.ObjectRef.Resource == c.Resource && e.Verb == "create" && e.ResponseStatus.Code == http.StatusCreated && !strings.Contains(e.RequestURI, "dryRun=") {
			users = append(users, e.User.Username)
		}
	}
	return users, nil
}
