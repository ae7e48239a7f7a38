import io.lettuce.core.*;
import io.lettuce.core.Consumer;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.models.stream.ClaimedMessages;
import io.lettuce.core.protocol.ProtocolVersion;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.connection.stream.ReadOffset;
import org.springframework.data.redis.connection.stream.StreamOffset;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.stream.StreamMessageListenerContainer;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.events.SessionExpiredEvent;

/** Lettuce with streams, and what Spring builds on it: Spring Data Redis and Spring Session. */
public final class Check {
    private static final int PORT = Integer.parseInt(System.getenv("PORT"));

    private static void check(String name, Object given, Object expected) {
        if (!Objects.equals(given, expected)) {
            throw new AssertionError(name + ": " + given + " is not " + expected);
        }
        System.out.println("ok " + name);
    }

    private static void until(String name, Callable<Boolean> condition) throws Exception {
        long end = System.currentTimeMillis() + 15_000;
        while (!condition.call()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError(name + ": not in time");
            }
            Thread.sleep(20);
        }
    }

    /** Four consumers share a stream; what one of them leaves pending goes to another. */
    private static void streams(RedisClient client, ProtocolVersion protocol) throws Exception {
        String label = "Lettuce " + protocol + " ";
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> redis = connection.sync();
        redis.flushall();
        redis.xgroupCreate(XReadArgs.StreamOffset.from("stream", "0"), "group", XGroupCreateArgs.Builder.mkstream());
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicInteger delivered = new AtomicInteger();
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<?>> consumers = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            String name = "consumer:" + n;
            consumers.add(threads.submit(() -> {
                try (StatefulRedisConnection<String, String> own = client.connect()) {
                    RedisCommands<String, String> mine = own.sync();
                    while (delivered.get() < 1000) {
                        for (StreamMessage<String, String> message : mine.xreadgroup(Consumer.from("group", name),
                                XReadArgs.Builder.block(100).count(10), XReadArgs.StreamOffset.lastConsumed("stream"))) {
                            seen.add(message.getBody().get("n"));
                            delivered.incrementAndGet();
                            mine.xack("stream", "group", message.getId());
                        }
                    }
                }
                return null;
            }));
        }
        connection.setAutoFlushCommands(false);
        List<RedisFuture<String>> added = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            added.add(connection.async().xadd("stream", Map.of("n", "" + n)));
        }
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        check(label + "pipeline", LettuceFutures.awaitAll(Duration.ofSeconds(10), added.toArray(new RedisFuture[0])), true);
        for (Future<?> each : consumers) {
            each.get(20, TimeUnit.SECONDS);
        }
        threads.shutdown();
        check(label + "each entry goes to one consumer", List.of(seen.size(), delivered.get()), List.of(1000, 1000));
        check(label + "nothing is pending", redis.xpending("stream", "group").getCount(), 0L);
        String id = redis.xadd("stream", "k", "v");
        redis.xreadgroup(Consumer.from("group", "lost"), XReadArgs.StreamOffset.lastConsumed("stream"));
        ClaimedMessages<String, String> claimed = redis.xautoclaim("stream",
            XAutoClaimArgs.Builder.xautoclaim(Consumer.from("group", "finder"), Duration.ZERO, "0"));
        check(label + "claim", claimed.getMessages().get(0).getId(), id);
        check(label + "pending of one", redis.xpending("stream", Consumer.from("group", "finder"), Range.unbounded(), Limit.from(10)).size(), 1);
        check(label + "range", redis.xrevrange("stream", Range.unbounded(), Limit.from(1)).get(0).getBody(), Map.of("k", "v"));
        check(label + "trim", List.of(redis.xtrim("stream", 10), redis.xlen("stream")), List.of(991L, 10L));
        check(label + "info", redis.xinfoGroups("stream").size(), 1);
        redis.multi();
        redis.incr("n");
        redis.xadd("stream", "last", "1");
        check(label + "transaction", redis.exec().size(), 2);
        check(label + "script", redis.<List<Object>>eval("return {redis.call('INCRBY', 'undeclared', 5), ARGV[1]}",
            ScriptOutputType.MULTI, new String[0], "x"), List.of(5L, "x"));
        connection.close();
    }

    private static void data(LettuceConnectionFactory factory) throws Exception {
        StringRedisTemplate template = new StringRedisTemplate(factory);
        RedisScript<Long> script = RedisScript.of("return redis.call('INCRBY', KEYS[1], ARGV[1])", Long.class);
        check("Spring Data script", template.execute(script, List.of("n"), "41"), 42L);
        var ids = template.executePipelined((org.springframework.data.redis.core.RedisCallback<Object>) connection -> {
            for (int n = 0; n < 100; n++) {
                connection.stringCommands().set(("key:" + n).getBytes(), "v".getBytes());
            }
            return null;
        });
        check("Spring Data pipeline", ids.size(), 100);
        try (var cursor = template.scan(org.springframework.data.redis.core.ScanOptions.scanOptions().match("key:*").count(7).build())) {
            check("Spring Data scan", cursor.stream().distinct().count(), 100L);
        }
        template.opsForStream().createGroup("events", ReadOffset.from("0"), "group");
        var options = StreamMessageListenerContainer.StreamMessageListenerContainerOptions.builder()
            .pollTimeout(Duration.ofMillis(200)).build();
        var container = StreamMessageListenerContainer.create(factory, options);
        Set<String> heard = ConcurrentHashMap.newKeySet();
        container.receiveAutoAck(org.springframework.data.redis.connection.stream.Consumer.from("group", "one"),
            StreamOffset.create("events", ReadOffset.lastConsumed()), message -> heard.add(message.getId().getValue()));
        container.start();
        for (int n = 0; n < 100; n++) {
            template.opsForStream().add("events", Map.of("n", "" + n));
        }
        until("Spring Data listener", () -> heard.size() == 100);
        container.stop();
        check("Spring Data acknowledges", template.opsForStream().pending("events", "group").getTotalPendingMessages(), 0L);
    }

    private static <S extends org.springframework.session.Session> void sessions(LettuceConnectionFactory factory) throws Exception {
        var template = new org.springframework.data.redis.core.RedisTemplate<String, Object>();
        template.setKeySerializer(org.springframework.data.redis.serializer.RedisSerializer.string());
        template.setHashKeySerializer(org.springframework.data.redis.serializer.RedisSerializer.string());
        template.setConnectionFactory(factory);
        template.afterPropertiesSet();
        new StringRedisTemplate(factory).execute((org.springframework.data.redis.core.RedisCallback<Object>) connection -> {
            connection.serverCommands().setConfig("notify-keyspace-events", "Egx");
            return null;
        });
        @SuppressWarnings("unchecked")
        var sessions = (org.springframework.session.FindByIndexNameSessionRepository<S>) (Object) new RedisIndexedSessionRepository(template);
        var repository = (RedisIndexedSessionRepository) (Object) sessions;
        BlockingQueue<String> expired = new LinkedBlockingQueue<>();
        repository.setApplicationEventPublisher(event -> {
            if (event instanceof SessionExpiredEvent gone) {
                expired.add(gone.getSessionId());
            }
        });
        repository.afterPropertiesSet();
        var container = new RedisMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.addMessageListener(repository, List.of(
            new org.springframework.data.redis.listener.ChannelTopic(repository.getSessionDeletedChannel()),
            new org.springframework.data.redis.listener.ChannelTopic(repository.getSessionExpiredChannel()),
            new org.springframework.data.redis.listener.PatternTopic(repository.getSessionCreatedChannelPrefix() + "*")));
        container.afterPropertiesSet();
        container.start();
        S session = sessions.createSession();
        String name = org.springframework.session.FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME;
        session.setAttribute(name, "ada");
        session.setAttribute("cart", new ArrayList<>(List.of("book")));
        sessions.save(session);
        check("Spring Session attribute", sessions.findById(session.getId()).getAttribute("cart"), List.of("book"));
        check("Spring Session of a user", sessions.findByPrincipalName("ada").keySet(), Set.of(session.getId()));
        String before = session.getId();
        session.changeSessionId();
        sessions.save(session);
        check("Spring Session changes its id", Arrays.asList(sessions.findById(before), sessions.findById(session.getId()) != null), Arrays.asList(null, true));
        session.setMaxInactiveInterval(Duration.ofSeconds(1));
        sessions.save(session);
        check("Spring Session expires by an event", expired.poll(20, TimeUnit.SECONDS), session.getId());
        check("Spring Session is gone", sessions.findByPrincipalName("ada"), Map.of());
        repository.destroy();
        container.stop();
    }

    private static void run() throws Exception {
        RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", PORT));
        streams(client, ProtocolVersion.RESP2);
        streams(client, ProtocolVersion.RESP3);
        LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", PORT);
        factory.afterPropertiesSet();
        factory.start();
        data(factory);
        sessions(factory);
        client.connect().sync().flushall();
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
}
