package testcontainers

import (
	"context"
	"testing"

	client "github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go/modules/redis"
	"github.com/testcontainers/testcontainers-go/modules/valkey"
)

func use(t *testing.T, url string) {
	options, err := client.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	db := client.NewClient(options)
	defer db.Close()
	if err := db.Set(context.Background(), "a", "b", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := db.Get(context.Background(), "a").Val(); got != "b" {
		t.Fatalf("got %q", got)
	}
}

func TestRedisModule(t *testing.T) {
	ctx := context.Background()
	container, err := redis.Run(ctx, "dunlin:latest", redis.WithSnapshotting(10, 1), redis.WithLogLevel(redis.LogLevelVerbose))
	if err != nil {
		t.Fatal(err)
	}
	defer container.Terminate(ctx)
	url, err := container.ConnectionString(ctx)
	if err != nil {
		t.Fatal(err)
	}
	use(t, url)
}

func TestValkeyModule(t *testing.T) {
	ctx := context.Background()
	container, err := valkey.Run(ctx, "dunlin:latest", valkey.WithSnapshotting(10, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer container.Terminate(ctx)
	url, err := container.ConnectionString(ctx)
	if err != nil {
		t.Fatal(err)
	}
	use(t, url)
}
