package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// serveWrite does create, update, merge patch and delete as clients send them.
func (m *Member) serveWrite(w http.ResponseWriter, r *http.Request, c *call) error {
	if r.URL.Query().Has("dryRun") {
		return apierrors.NewBadRequest("dryRun is not simulated")
	}
	switch c.verb {
	case "create":
		return m.serveCreate(w, r, c)
	case "update":
		return m.serveUpdate(w, r, c)
	case "patch":
		if media := r.Header.Get("Content-Type"); media != string(types.MergePatchType) {
			writeStatus(w, r, &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
				Message: fmt.Sprintf("of patches only %s is simulated", types.MergePatchType),
			})
			return nil
		}
		patch, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 3<<20))
		if err != nil {
			return apierrors.NewRequestEntityTooLargeError(err.Error())
		}
		it, err := m.patch(c.table, c.namespace, c.name, patch)
		if err != nil {
			return err
		}
		return c.respond(w, r, http.StatusOK, it)
	}
	return m.serveDelete(w, r, c)
}

func (m *Member) serveCreate(w http.ResponseWriter, r *http.Request, c *call) error {
	obj, err := c.decodeBody(r)
	if err != nil {
		return err
	}
	if c.name != "" {
		return apierrors.NewMethodNotSupported(c.gr, "create")
	}
	obj.SetNamespace(c.namespace)
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	if obj.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	obj.GetObjectKind().SetGroupVersionKind(c.table.gvk(c.version))
	if err := m.Create(obj); err != nil {
		return err
	}
	c.name = obj.GetName()
	return m.respondPresent(w, r, http.StatusCreated, c)
}

func (m *Member) serveUpdate(w http.ResponseWriter, r *http.Request, c *call) error {
	obj, err := c.decodeBody(r)
	if err != nil {
		return err
	}
	if obj.GetName() != c.name {
		return apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	obj.SetNamespace(c.namespace)
	obj.GetObjectKind().SetGroupVersionKind(c.table.gvk(c.version))
	it, err := m.update(c.table, obj)
	if err != nil {
		return err
	}
	return c.respond(w, r, http.StatusOK, it)
}

func (m *Member) respondPresent(w http.ResponseWriter, r *http.Request, code int, c *call) error {
	m.mu.Lock()
	it, ok := c.table.objects.Get(objectKey(c.namespace, c.name))
	m.mu.Unlock()
	if !ok {
		return apierrors.NewNotFound(c.gr, c.name)
	}
	return c.respond(w, r, code, it)
}

func (m *Member) serveDelete(w http.ResponseWriter, r *http.Request, c *call) error {
	if c.name == "" {
		return apierrors.NewMethodNotSupported(c.gr, "deletecollection")
	}
	var opts metav1.DeleteOptions
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 1<<20))
	if err != nil {
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	if err := decodeOptions(body, &opts); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	var p metav1.Preconditions
	if opts.Preconditions != nil {
		p = *opts.Preconditions
	}
	if err := m.remove(c.table, c.namespace, c.name, p); err != nil {
		return err
	}
	contentType, body := encodeStatus(&metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: c.name, Group: c.gr.Group, Kind: c.gr.Resource},
	}, c.protobuf)
	writeBody(w, r, http.StatusOK, contentType, body)
	return nil
}

// decodeOptions reads what typed clients send as protobuf and others as JSON.
func decodeOptions(body []byte, into *metav1.DeleteOptions) error {
	switch {
	case len(body) == 0:
		return nil
	case string(body[:min(len(body), len(protoPrefix))]) == protoPrefix:
		var u runtime.Unknown
		if err := u.Unmarshal(body[len(protoPrefix):]); err != nil {
			return err
		}
		return into.Unmarshal(u.Raw)
	}
	return json.Unmarshal(body, into)
}
