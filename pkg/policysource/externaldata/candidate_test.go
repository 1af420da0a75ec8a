package externaldata_test

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/policysource/externaldata"
)

// slowTree is a tree whose files take as long as a test says.
type slowTree struct {
	files fstest.MapFS
	open  func()
}

// Open implements fs.FS.
func (t slowTree) Open(name string) (fs.File, error) {
	t.open()
	return t.files.Open(name)
}

// TestManager_BesideHoldsNobodyUp: what a candidate's documents would be takes a while, and nothing else waits for it.
func TestManager_BesideHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, externaldata.Options{})
		r.checkout = externaldata.Checkout{Commit: "c1", Tree: fstest.MapFS{"owners.json": {Data: []byte(`{"web":"x"}`)}}, At: time.Now()}
		file, configMap := externaldata.Document{Key: "owners", File: "owners.json"}, externaldata.Document{Key: "freeze", ConfigMap: &externaldata.ConfigMapKey{Name: "freeze", Key: "x.json"}}
		r.configMaps["freeze"] = map[string]string{"x.json": "1"}
		r.sources(file, configMap)
		next := slowTree{fstest.MapFS{"owners.json": {Data: []byte(`{"web":"y"}`)}}, func() {
			synctest.Wait()
			r.set(func() { r.configMaps["freeze"] = map[string]string{"x.json": "2"} })
			r.TriggerConfigMap("freeze")
			synctest.Wait()
			if d, _ := r.State().External.Document("cmdb", "freeze"); string(d.JSON) != "2" {
				t.Errorf("meanwhile freeze is %s", d.JSON)
			}
		}}
		beside := r.Beside(r.State(), "cmdb", externaldata.Checkout{Commit: "c2", Tree: next, At: time.Now()})
		if d, _ := beside.Document("cmdb", "owners"); string(d.JSON) != `{"web":"y"}` {
			t.Errorf("owners would be %s", d.JSON)
		}
	})
}
