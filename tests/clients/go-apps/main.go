// Libraries on top of go-redis: redsync (locks), redis_rate (limits) and asynq (queues), all by scripts. And rueidis,
// which caches in the client, with Centrifuge on top of it: streams and presence by scripts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/centrifugal/centrifuge"
	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

var (
	ctx     = context.Background()
	address = "127.0.0.1:" + os.Getenv("PORT")
)

func fail(arguments ...any) {
	fmt.Fprintln(os.Stderr, arguments...)
	os.Exit(1)
}

func check(name string, given, expected any) {
	if !reflect.DeepEqual(given, expected) {
		fail(fmt.Sprintf("%s: %#v is not %#v", name, given, expected))
	}
	fmt.Println("ok", name)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}

func until(name string, condition func() bool) {
	for end := time.Now().Add(15 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			fail(name + ": not in time")
		}
	}
}

func locks(client *redis.Client) {
	sync_ := redsync.New(goredis.NewPool(client))
	counter := 0
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 25 {
				mutex := sync_.NewMutex("lock", redsync.WithTries(500), redsync.WithRetryDelay(2*time.Millisecond))
				if err := mutex.Lock(); err != nil {
					fail(err)
				}
				counter++
				must(mutex.Unlock())
			}
		}()
	}
	group.Wait()
	check("redsync increments under a lock", counter, 200)
	first := sync_.NewMutex("lease", redsync.WithExpiry(300*time.Millisecond))
	check("redsync lock", first.Lock(), nil)
	err := sync_.NewMutex("lease", redsync.WithTries(1)).Lock()
	var taken *redsync.ErrTaken
	check("redsync is taken", errors.As(err, &taken), true)
	check("redsync extend", must(first.Extend()), true)
	time.Sleep(400 * time.Millisecond)
	_, err = first.Unlock()
	check("redsync lease is over", err != nil, true)
	check("redsync is free again", sync_.NewMutex("lease").Lock(), nil)
}

func rates(client *redis.Client) {
	limiter := redis_rate.NewLimiter(client)
	var allowed atomic.Int64
	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			allowed.Add(int64(must(limiter.Allow(ctx, "visitor", redis_rate.PerMinute(10))).Allowed))
		}()
	}
	group.Wait()
	check("redis_rate allows", allowed.Load(), int64(10))
	refused := must(limiter.Allow(ctx, "visitor", redis_rate.PerMinute(10)))
	check("redis_rate says when", refused.RetryAfter > 0 && refused.RetryAfter <= 6*time.Second, true)
	check("redis_rate allows a part", must(limiter.AllowAtMost(ctx, "other", redis_rate.PerSecond(5), 8)).Allowed, 5)
	check("redis_rate reset", limiter.Reset(ctx, "visitor"), nil)
	check("redis_rate allows again", must(limiter.AllowN(ctx, "visitor", redis_rate.PerMinute(10), 10)).Remaining, 0)
}

func queues() {
	at := asynq.RedisClientOpt{Addr: address, DB: 4}
	client := asynq.NewClient(at)
	inspector := asynq.NewInspector(at)
	var ran, flaky atomic.Int64
	mux := asynq.NewServeMux()
	mux.HandleFunc("count", func(_ context.Context, task *asynq.Task) error {
		ran.Add(1)
		_, err := task.ResultWriter().Write(task.Payload())
		return err
	})
	mux.HandleFunc("flaky", func(context.Context, *asynq.Task) error {
		if flaky.Add(1) < 3 {
			return errors.New("again")
		}
		return nil
	})
	mux.HandleFunc("broken", func(context.Context, *asynq.Task) error { return asynq.SkipRetry })
	joined := make(chan string, 10)
	mux.HandleFunc("joined", func(_ context.Context, task *asynq.Task) error {
		joined <- string(task.Payload())
		return nil
	})
	config := asynq.Config{
		Concurrency:              8,
		Queues:                   map[string]int{"high": 6, "low": 1},
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
		TaskCheckInterval:        100 * time.Millisecond,
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		GroupGracePeriod:         time.Second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
			return asynq.NewTask("joined", fmt.Appendf(nil, "%d", len(tasks)))
		}),
	}
	servers := []*asynq.Server{asynq.NewServer(at, config), asynq.NewServer(at, config)}
	for _, server := range servers {
		check("asynq start", server.Start(mux), nil)
	}
	var last *asynq.TaskInfo
	for n := range 300 {
		queue := []string{"high", "low"}[n%2]
		task := asynq.NewTask("count", fmt.Appendf(nil, "%d", n))
		last = must(client.Enqueue(task, asynq.Queue(queue), asynq.Retention(time.Minute)))
	}
	until("asynq runs all", func() bool {
		return must(inspector.GetQueueInfo("high")).Completed+must(inspector.GetQueueInfo("low")).Completed == 300
	})
	check("asynq runs each task once", ran.Load(), int64(300))
	check("asynq result", string(must(inspector.GetTaskInfo("low", last.ID)).Result), "299")
	unique := asynq.NewTask("count", []byte("unique"))
	options := []asynq.Option{asynq.Queue("low"), asynq.Unique(time.Minute), asynq.ProcessIn(300 * time.Millisecond)}
	must(client.Enqueue(unique, options...))
	_, err := client.Enqueue(unique, options...)
	check("asynq unique", errors.Is(err, asynq.ErrDuplicateTask), true)
	check("asynq scheduled", must(inspector.GetQueueInfo("low")).Scheduled, 1)
	until("asynq delay", func() bool { return ran.Load() == 301 })
	must(client.Enqueue(asynq.NewTask("flaky", nil), asynq.Queue("high")))
	until("asynq retry", func() bool { return flaky.Load() == 3 })
	must(client.Enqueue(asynq.NewTask("broken", nil), asynq.Queue("high")))
	until("asynq archive", func() bool { return must(inspector.GetQueueInfo("high")).Archived == 1 })
	check("asynq archive", must(inspector.DeleteAllArchivedTasks("high")), 1)
	for n := range 10 {
		must(client.Enqueue(asynq.NewTask("part", fmt.Appendf(nil, "%d", n)), asynq.Queue("low"), asynq.Group("g")))
	}
	select {
	case count := <-joined:
		check("asynq joins a group", count, "10")
	case <-time.After(15 * time.Second):
		fail("asynq group: not in time")
	}
	check("asynq servers", len(must(inspector.Servers())), 2)
	for _, server := range servers {
		server.Shutdown()
	}
	check("asynq servers sign off", len(must(inspector.Servers())), 0)
	for _, queue := range []string{"high", "low"} {
		check("asynq deletes a queue", inspector.DeleteQueue(queue, true), nil)
	}
}

// Values that are cached in the client, which the server tells when they change.
func caching() {
	client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}}))
	defer client.Close()
	set := func(key, value string) {
		check("rueidis set", client.Do(ctx, client.B().Set().Key(key).Value(value).Build()).Error(), nil)
	}
	get := func(key string) (string, bool) {
		result := client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Minute)
		return must(result.ToString()), result.IsCacheHit()
	}
	set("cached", "1")
	for n := range 3 {
		value, isHit := get("cached")
		check("rueidis cache", []any{value, isHit}, []any{"1", n > 0})
	}
	set("cached", "2")
	until("rueidis invalidation", func() bool { value, _ := get("cached"); return value == "2" })
	var group sync.WaitGroup
	var right atomic.Int64
	for n := range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			for m := range 100 {
				key := fmt.Sprint("key:", n, ":", m)
				if err := client.Do(ctx, client.B().Set().Key(key).Value(key).Build()).Error(); err != nil {
					fail(err)
				}
				if value, _ := get(key); value == key {
					right.Add(1)
				}
			}
		}()
	}
	group.Wait()
	check("rueidis caches what was written", right.Load(), int64(2000))
	script := rueidis.NewLuaScript("return {KEYS[1], ARGV[1]}")
	words := must(script.Exec(ctx, client, []string{"k"}, []string{"v"}).AsStrSlice())
	check("rueidis script", words, []string{"k", "v"})
}

// The engine of a messaging server: history in streams and in lists, presence in hashes and sorted sets.
func messaging() {
	node := must(centrifuge.New(centrifuge.Config{}))
	shard := must(centrifuge.NewRedisShard(node, centrifuge.RedisShardConfig{Address: address}))
	shards := []*centrifuge.RedisShard{shard}
	for _, lists := range []bool{false, true} {
		config := centrifuge.RedisBrokerConfig{Shards: shards, Prefix: fmt.Sprint("history", lists), UseLists: lists}
		broker := must(centrifuge.NewRedisBroker(node, config))
		for n := range 10 {
			options := centrifuge.PublishOptions{HistorySize: 5, HistoryTTL: time.Minute}
			_, _, err := broker.Publish("channel", fmt.Appendf(nil, "%d", n), options)
			check("Centrifuge publish", err, nil)
		}
		every := centrifuge.HistoryOptions{Filter: centrifuge.HistoryFilter{Limit: -1}}
		kept, top, err := broker.History("channel", every)
		check("Centrifuge history", []any{len(kept), top.Offset, string(kept[0].Data), err}, []any{5, uint64(10), "5", nil})
		check("Centrifuge removes history", broker.RemoveHistory("channel"), nil)
	}
	manager := must(centrifuge.NewRedisPresenceManager(node, centrifuge.RedisPresenceManagerConfig{Shards: shards}))
	for n := range 5 {
		client := fmt.Sprint("client", n)
		info := &centrifuge.ClientInfo{ClientID: client, UserID: fmt.Sprint("user", n%2)}
		check("Centrifuge adds presence", manager.AddPresence("channel", client, info), nil)
	}
	check("Centrifuge presence", len(must(manager.Presence("channel"))), 5)
	stats := must(manager.PresenceStats("channel"))
	check("Centrifuge counts", []int{stats.NumClients, stats.NumUsers}, []int{5, 2})
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: address})
	client.FlushAll(ctx)
	locks(client)
	rates(client)
	queues()
	caching()
	messaging()
	client.FlushAll(ctx)
}
