import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.api.stream.*;
import org.redisson.client.codec.StringCodec;
import org.redisson.codec.SerializationCodec;
import org.redisson.config.Config;

/** What an application does through Redisson: locks, maps and queues, most of them scripts. */
public final class Check {
    private static final String ADDRESS = "redis://127.0.0.1:" + System.getenv("PORT");
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private static void check(String name, Object given, Object expected) {
        if (!Objects.equals(given, expected)) {
            throw new AssertionError(name + ": " + given + " is not " + expected);
        }
        System.out.println("ok redisson " + name);
    }

    private static RedissonClient connect() {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(ADDRESS).setConnectionMinimumIdleSize(4).setConnectionPoolSize(16);
        return Redisson.create(config);
    }

    /** Runs a task in each of several threads and waits for all. */
    private static void inThreads(int count, Callable<?> task) throws Exception {
        List<Future<?>> running = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            running.add(THREADS.submit(task));
        }
        for (Future<?> each : running) {
            each.get(20, TimeUnit.SECONDS);
        }
    }

    private static void locks(RedissonClient one, RedissonClient two) throws Exception {
        for (String kind : List.of("lock", "fair", "spin")) {
            int[] counter = {0};
            AtomicInteger next = new AtomicInteger();
            inThreads(8, () -> {
                RedissonClient client = next.getAndIncrement() % 2 == 0 ? one : two;
                RLock lock = switch (kind) {
                    case "fair" -> client.getFairLock("fair");
                    case "spin" -> client.getSpinLock("spin");
                    default -> client.getLock("lock");
                };
                for (int n = 0; n < 20; n++) {
                    lock.lock();
                    counter[0]++;
                    lock.unlock();
                }
                return null;
            });
            check("increments under " + kind, counter[0], 160);
        }
        RLock lock = one.getLock("lease");
        lock.lock(500, TimeUnit.MILLISECONDS);
        lock.lock(500, TimeUnit.MILLISECONDS);
        check("reentrant", lock.getHoldCount(), 2);
        check("another client does not get it", two.getLock("lease").tryLock(), false);
        check("it waits for the lease to end", two.getLock("lease").tryLock(5, 1, TimeUnit.SECONDS), true);
        two.getLock("lease").unlock();
        RReadWriteLock shared = one.getReadWriteLock("shared");
        shared.readLock().lock();
        check("two readers", two.getReadWriteLock("shared").readLock().tryLock(), true);
        check("no writer beside readers", THREADS.submit(() -> two.getReadWriteLock("shared").writeLock().tryLock()).get(), false);
        shared.readLock().unlock();
        two.getReadWriteLock("shared").readLock().unlock();
        RLock all = one.getMultiLock(one.getLock("m:1"), one.getLock("m:2"), one.getLock("m:3"));
        all.lock();
        check("a lock of several", two.getLock("m:2").isLocked(), true);
        all.unlock();
        RSemaphore permits = one.getSemaphore("permits");
        permits.trySetPermits(3);
        permits.acquire(2);
        check("semaphore", List.of(permits.availablePermits(), two.getSemaphore("permits").tryAcquire(2)), List.of(1, false));
        RPermitExpirableSemaphore leased = one.getPermitExpirableSemaphore("leased");
        leased.trySetPermits(1);
        leased.acquire(300, TimeUnit.MILLISECONDS);
        String again = two.getPermitExpirableSemaphore("leased").tryAcquire(5, 1, TimeUnit.SECONDS);
        check("a permit that ends", again != null, true);
        RCountDownLatch latch = one.getCountDownLatch("latch");
        latch.trySetCount(2);
        Future<Boolean> waiting = THREADS.submit(() -> two.getCountDownLatch("latch").await(5, TimeUnit.SECONDS));
        latch.countDown();
        latch.countDown();
        check("latch", waiting.get(), true);
    }

    private static void maps(RedissonClient one, RedissonClient two) throws Exception {
        RMap<String, String> map = one.getMap("map");
        check("put", Arrays.asList(map.put("a", "1"), map.put("a", "2"), map.putIfAbsent("a", "3"), map.replace("a", "4")),
            Arrays.asList(null, "1", "2", "2"));
        for (int n = 0; n < 2000; n++) {
            map.fastPutAsync("field:" + n, "" + n);
        }
        map.fastPut("last", "x");
        check("size and iteration", List.of(map.size(), new HashSet<>(map.readAllKeySet()).size(), (int) map.keySet().stream().count()),
            List.of(2002, 2002, 2002));
        RMapCache<String, String> cache = one.getMapCache("cache");
        BlockingQueue<String> expired = new LinkedBlockingQueue<>();
        cache.addListener((org.redisson.api.map.event.EntryExpiredListener<String, String>) event -> expired.add(event.getKey()));
        cache.put("short", "1", 300, TimeUnit.MILLISECONDS);
        cache.put("long", "2", 1, TimeUnit.MINUTES);
        check("a cache entry", two.getMapCache("cache").get("short"), "1");
        check("an entry that ended is announced", expired.poll(15, TimeUnit.SECONDS), "short");
        check("the other one stays", cache.readAllMap(), Map.of("long", "2"));
        cache.setMaxSize(2);
        cache.put("b", "b");
        cache.put("c", "c");
        check("size limit", cache.size(), 2);
        RMapCacheNative<String, String> fields = one.getMapCacheNative("native");
        fields.put("f", "v", Duration.ofMillis(300));
        fields.put("g", "v", Duration.ofMinutes(1));
        check("field expiry", fields.remainTimeToLive("g") > 50_000, true);
        long end = System.currentTimeMillis() + 5000;
        while (fields.containsKey("f") && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        check("a field that ended", fields.readAllKeySet(), Set.of("g"));
        RLocalCachedMap<String, String> near = two.getLocalCachedMap(org.redisson.api.options.LocalCachedMapOptions.name("near"));
        RLocalCachedMap<String, String> far = one.getLocalCachedMap(org.redisson.api.options.LocalCachedMapOptions.name("near"));
        far.put("k", "1");
        check("near cache", near.get("k"), "1");
        far.put("k", "2");
        while (!"2".equals(near.get("k")) && System.currentTimeMillis() < end + 5000) {
            Thread.sleep(20);
        }
        check("near cache is told of changes", near.get("k"), "2");
        RSetMultimap<String, String> many = one.getSetMultimap("multi");
        check("multimap", List.of(many.put("a", "1"), many.put("a", "1"), many.put("a", "2"), many.get("a").size()), List.of(true, false, true, 2));
        RScoredSortedSet<String> board = one.getScoredSortedSet("board");
        board.addAll(Map.of("a", 1.0, "b", 2.0, "c", 3.0));
        check("sorted set", List.of(board.rank("c"), board.addScore("a", 5), board.last(), board.pollFirst()), List.of(2, 6.0, "a", "b"));
        RBloomFilter<String> bloom = one.getBloomFilter("bloom");
        bloom.tryInit(1000, 0.01);
        check("bloom filter", List.of(bloom.add("x"), bloom.add("x"), bloom.contains("x"), bloom.contains("y")), List.of(true, false, true, false));
        RHyperLogLog<String> visitors = one.getHyperLogLog("visitors");
        visitors.addAll(List.of("a", "b", "c", "a"));
        check("hyperloglog", visitors.count(), 3L);
        RGeo<String> geo = one.getGeo("geo");
        geo.add(13.361389, 38.115556, "Palermo");
        geo.add(15.087269, 37.502669, "Catania");
        check("geo", Math.round(geo.dist("Palermo", "Catania", GeoUnit.KILOMETERS)), 166L);
        RIdGenerator ids = one.getIdGenerator("ids");
        ids.tryInit(1, 100);
        Set<Long> given = ConcurrentHashMap.newKeySet();
        inThreads(4, () -> {
            for (int n = 0; n < 200; n++) {
                given.add(ids.nextId());
            }
            return null;
        });
        check("ids are unique", given.size(), 800);
    }

    private static void queues(RedissonClient one, RedissonClient two) throws Exception {
        RBlockingQueue<String> queue = one.getBlockingQueue("queue");
        Set<String> got = ConcurrentHashMap.newKeySet();
        Future<?> takers = THREADS.submit(() -> {
            inThreads(4, () -> {
                RBlockingQueue<String> mine = two.getBlockingQueue("queue");
                for (String item = mine.poll(5, TimeUnit.SECONDS); !"end".equals(item); item = mine.poll(5, TimeUnit.SECONDS)) {
                    got.add(item);
                }
                return null;
            });
            return null;
        });
        for (int n = 0; n < 500; n++) {
            queue.add("item:" + n);
        }
        for (int n = 0; n < 4; n++) {
            queue.add("end");
        }
        takers.get(20, TimeUnit.SECONDS);
        check("each item is taken once", got.size(), 500);
        RBoundedBlockingQueue<String> bounded = one.getBoundedBlockingQueue("bounded");
        bounded.trySetCapacity(2);
        check("bounded", List.of(bounded.offer("a"), bounded.offer("b"), bounded.offer("c")), List.of(true, true, false));
        Future<Boolean> offered = THREADS.submit(() -> bounded.offer("c", 5, TimeUnit.SECONDS));
        check("space", List.of(two.getBoundedBlockingQueue("bounded").poll(), offered.get()), List.of("a", true));
        RDelayedQueue<String> delayed = one.getDelayedQueue(one.getQueue("later"));
        long begin = System.currentTimeMillis();
        delayed.offer("second", 400, TimeUnit.MILLISECONDS);
        delayed.offer("first", 200, TimeUnit.MILLISECONDS);
        RBlockingQueue<String> later = one.getBlockingQueue("later");
        check("delayed in order", Arrays.asList(later.poll(10, TimeUnit.SECONDS), later.poll(10, TimeUnit.SECONDS)), List.of("first", "second"));
        check("not early", System.currentTimeMillis() - begin >= 400, true);
        delayed.destroy();
        RPriorityQueue<String> sorted = one.getPriorityQueue("sorted");
        sorted.addAll(List.of("c", "a", "b"));
        check("priority", List.of(sorted.poll(), sorted.poll(), sorted.poll()), List.of("a", "b", "c"));
        RRingBuffer<String> ring = one.getRingBuffer("ring");
        ring.trySetCapacity(3);
        ring.addAll(List.of("1", "2", "3", "4"));
        check("ring", ring.readAll(), List.of("2", "3", "4"));
        RStream<String, String> stream = one.getStream("stream");
        stream.createGroup(StreamCreateGroupArgs.name("group").makeStream());
        StreamMessageId id = stream.add(StreamAddArgs.entry("k", "v"));
        var read = stream.readGroup("group", "me", StreamReadGroupArgs.neverDelivered());
        check("stream group", read, Map.of(id, Map.of("k", "v")));
        check("acknowledged", List.of(stream.ack("group", id), stream.getPendingInfo("group").getTotal()), List.of(1L, 0L));
        RReliableTopic topic = two.getReliableTopic("reliable");
        BlockingQueue<String> messages = new LinkedBlockingQueue<>();
        topic.addListener(String.class, (channel, message) -> messages.add(message));
        one.getReliableTopic("reliable").publish("hello");
        check("reliable topic", messages.poll(10, TimeUnit.SECONDS), "hello");
        topic.removeAllListeners();
    }

    private static void others(RedissonClient one, RedissonClient two) throws Exception {
        RRateLimiter limiter = one.getRateLimiter("limiter");
        limiter.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(30));
        int allowed = 0;
        for (int n = 0; n < 20; n++) {
            allowed += (n % 2 == 0 ? limiter : two.getRateLimiter("limiter")).tryAcquire() ? 1 : 0;
        }
        check("rate limit", allowed, 5);
        RTransaction transaction = one.createTransaction(TransactionOptions.defaults());
        transaction.getMap("accounts").put("a", "1");
        transaction.getBucket("total").set("1");
        check("a transaction is not seen", two.getBucket("total").isExists(), false);
        transaction.commit();
        check("a committed one is", List.of(two.getMap("accounts").get("a"), two.getBucket("total").get()), List.of("1", "1"));
        RBatch batch = one.createBatch(BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC));
        for (int n = 0; n < 100; n++) {
            batch.getAtomicLong("sum").addAndGetAsync(n);
        }
        List<?> sums = batch.execute().getResponses();
        check("atomic batch", sums.get(99), 4950L);
        SerializationCodec objects = new SerializationCodec();
        RRemoteService remote = one.getRemoteService("remote", objects);
        remote.register(Calculator.class, new Adder());
        check("remote call", two.getRemoteService("remote", objects).get(Calculator.class).add(2, 3), 5);
        remote.deregister(Calculator.class);
        long keys = one.getKeys().getKeysStreamByPattern("m*").count();
        check("scan of keys", keys >= 1, true);
    }

    /** What the remote service offers. */
    public interface Calculator {
        int add(int a, int b);
    }

    /** The offer's implementation. */
    public static final class Adder implements Calculator {
        @Override
        public int add(int a, int b) {
            return a + b;
        }
    }

    public static void main(String[] args) {
        try {
            run();
            System.exit(0);
        } catch (Throwable error) {
            // The client's threads would keep the process alive.
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run() throws Exception {
        RedissonClient one = connect();
        RedissonClient two = connect();
        one.getKeys().flushall();
        locks(one, two);
        maps(one, two);
        queues(one, two);
        others(one, two);
        one.getKeys().flushall();
        one.shutdown();
        two.shutdown();
    }
}
